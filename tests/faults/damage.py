"""A data folder with one of everything, ways to damage a file of it, and what a broker makes of that.

The folder is of a broker that took over what Kafka's format command left, wrote transactions (some aborted) over
several segments, compacted a topic, deleted records, committed offsets, and gave out producer ids. Brokers here have no
socket: opening a folder, and requests, are function calls. A killed broker is one whose folder is copied while it runs:
what it wrote is in the page cache, which is what survives it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from oncelog.broker.state import BrokerState
from oncelog.controller.features import BOOTSTRAP_FEATURES
from oncelog.controller.snapshot import BOOTSTRAP_FILE, encode_snapshot
from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.doctor.checkup import Diagnosis, check_up
from oncelog.errors import CorruptMessage, KafkaError, KafkaStorageError, OncelogError
from oncelog.log.checkpoints import write_topic_id
from oncelog.log.inspection import Severity
from oncelog.log.partition_log import PartitionLog
from oncelog.log.producer_state import AppendOrigin
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from oncelog.records.batch import build_batch, decode_records
from oncelog.types import TopicPartition
from tests.broker.support import NOW_MS, Desk
from tests.broker.transactions.support import Producer, add, end, init, listed
from tests.support.groups import commit_request

ORDERS = TopicPartition("orders", 0)  # transactions
PRICES = TopicPartition("prices", 0)  # compacted
STOCK = TopicPartition("stock", 0)  # its first records are deleted
OFFSETS = TopicPartition("__consumer_offsets", 0)
TRANSACTIONS = TopicPartition("__transaction_state", 0)
METADATA = "__cluster_metadata-0"
GROUP = "billing"
SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "metadata_log_max_record_bytes_between_snapshots": "700",
    "auto_create_topics_enable": "false",
}
QUORUM_STATE = '{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"VV_T4Vd-Q0OOw2o2PH_irg","data_version":1}'


def open_desk(folder: Path) -> Desk:
    desk = Desk(FileStorage(), str(folder), **SETTINGS)
    desk.broker.resume_groups()
    desk.broker.resume_transactions()
    return desk


# --- the folder ---


class Writers:
    """Who writes to the folder, and what each wrote last."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.mover = init(desk, "mover")
        answer = desk.ask("init_producer_id", 5, {"transactional_id": None, "transaction_timeout": 60_000})
        self.plain = Producer(answer["producer_id"], answer["producer_epoch"])
        self.sequence = 0
        self.last_batch = bytearray()

    def transaction(self, number: int, *, commit: bool) -> None:
        assert add(self.desk, self.mover, ORDERS, transactional_id="mover") == [0]
        for step in range(2):
            rows = [(NOW_MS + number, b"key", f"{number}/{step}".encode(), ())]
            batch = build_batch(
                rows,
                producer_id=self.mover.producer_id,
                producer_epoch=self.mover.epoch,
                base_sequence=step,
                transactional=True,
            )
            self.append(ORDERS, batch)
        answer = end(self.desk, self.mover, commit=commit, transactional_id="mover")
        assert answer["error_code"] == 0
        self.mover = Producer(answer["producer_id"], answer["producer_epoch"])

    def send(self, partition: TopicPartition, key: str, value: str) -> None:
        """Of the idempotent producer, to STOCK; others get plain records."""
        if partition == STOCK:
            producer_id, epoch = self.plain
            sequence, self.sequence = self.sequence, self.sequence + 1
        else:
            producer_id, epoch, sequence = -1, -1, -1
        rows = [(NOW_MS, key.encode(), value.encode(), ())]
        batch = build_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        if partition == STOCK:
            self.last_batch = bytearray(batch)
        self.append(partition, batch)

    def append(self, partition: TopicPartition, batch: bytearray) -> None:
        log = self.desk.broker.partition(*partition)
        log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.CLIENT)
        log.advance_high_watermark(log.log_end_offset)


class Scene(NamedTuple):
    stopped: Path
    killed: Path
    older: tuple[Path, ...]
    """The newest first."""
    right: Seen
    last_batch: bytes
    """Of the idempotent producer; sent again, it must be recognised."""
    given_out: int
    """The highest producer id that anybody has."""


def build(folder: Path) -> Scene:
    """The folder, as a clean stop left it, as a kill left it, and as it was twice before."""
    live = folder / "live"
    _format_as_kafka(live)
    desk = open_desk(live)
    for name in ("orders", "stock"):
        desk.create(name, index_interval_bytes="0", file_delete_delay_ms="0")
    desk.create("prices", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", file_delete_delay_ms="0")
    for key_type, key in enumerate((GROUP, "mover")):
        desk.ask("find_coordinator", 4, {"key_type": key_type, "coordinator_keys": [key]})
    writers = Writers(desk)
    _write(writers, range(8))
    _roll_and_flush(desk.broker)
    _clean(desk.broker)
    shutil.copytree(live, folder / "older")
    _write(writers, range(8, 16))
    desk.create("gone")
    writers.send(TopicPartition("gone", 0), "article", "gone")
    desk.ask("delete_topics", 6, {"topics": [{"name": "gone", "topic_id": None}], "timeout": 1000})
    _roll_and_flush(desk.broker)
    _write(writers, range(16, 20))
    _write_out_indexes(desk.broker)
    shutil.copytree(live, folder / "later")
    _write(writers, range(20, 24))
    shutil.copytree(live, folder / "killed")
    desk.broker.stop(NOW_MS)
    shutil.copytree(live, folder / "stopped")
    given_out = max(writers.mover.producer_id, writers.plain.producer_id)
    older = (folder / "later", folder / "older")
    scene = Scene(folder / "stopped", folder / "killed", older, NOTHING_SEEN, bytes(writers.last_batch), given_out)
    return scene._replace(right=look(open_desk(copied(folder / "stopped", folder / "oracle")), scene))


def _format_as_kafka(live: Path) -> None:
    """Not all that Kafka's format command writes: what an oncelog alone would not have."""
    (live / METADATA).mkdir(parents=True)
    (live / METADATA / "quorum-state").write_text(QUORUM_STATE)
    write_topic_id(FileStorage(), str(live / METADATA), UUID(int=1))
    state = ControllerState()
    state.features.update(BOOTSTRAP_FEATURES)
    (live / BOOTSTRAP_FILE).write_bytes(encode_snapshot(state, NOW_MS, 1))
    (live / "meta.properties").write_text(
        "cluster.id=Yh0oGQSfSCW6wqNVAXcmlg\ndirectory.id=D7PcOVo9RrqXW9qI9in3cw\nnode.id=1\nversion=1\n"
    )


def _write(writers: Writers, numbers: range) -> None:
    for number in numbers:
        writers.transaction(number, commit=number % 3 != 0)
        writers.send(PRICES, f"article-{number % 3}", str(number))
        writers.send(STOCK, "article", str(number))
    wanted = commit_request(GROUP, ("orders", 0, numbers.stop), ("stock", 0, numbers.stop))
    answer = writers.desk.ask("offset_commit", 8, wanted)
    assert {each["error_code"] for topic in answer["topics"] for each in topic["partitions"]} == {0}
    partitions = [{"partition_index": STOCK.partition, "offset": numbers.stop // 4}]
    writers.desk.ask(
        "delete_records", 2, {"topics": [{"name": STOCK.topic, "partitions": partitions}], "timeout": 1000}
    )


def _roll_and_flush(broker: BrokerState) -> None:
    for log in broker.logs.logs.values():
        log.roll(NOW_MS)
    for flush in broker.logs.flushes_due(NOW_MS):
        flush.run()
        broker.logs.flushed(flush, NOW_MS)
    broker.logs.checkpoint()


def _write_out_indexes(broker: BrokerState) -> None:
    """As a growing segment does by itself when a block of entries is full."""
    for log in (broker.controller._log._log, *broker.logs.logs.values()):
        log.active_segment.write_out_indexes()


def _clean(broker: BrokerState) -> None:
    while cleaning := broker.logs.next_cleaning(NOW_MS, NOW_MS):
        while broker.logs.cleaned(cleaning.clean_next(), NOW_MS):
            pass
    for removal in broker.logs.removals_due(NOW_MS):
        removal.run()
    broker.logs.checkpoint()


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


# --- what a broker says of it ---


class SeenRecord(NamedTuple):
    offset: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None


class SeenPartition(NamedTuple):
    start_offset: int
    end_offset: int
    last_stable_offset: int
    records: tuple[SeenRecord, ...]
    committed: tuple[SeenRecord, ...]


class Seen(NamedTuple):
    topics: dict[str, object]
    partitions: dict[TopicPartition, SeenPartition | str]
    """Or why it cannot be read."""
    offsets: object
    transactions: object
    duplicate: object
    """Where the idempotent producer's last batch is, if it is recognised."""


NOTHING_SEEN = Seen({}, {}, None, None, None)
OFFLINE = "KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE"


def look(desk: Desk, scene: Scene) -> Seen:
    broker = desk.broker
    state = broker.controller.state
    assert broker.controller.next_producer_id(NOW_MS) > scene.given_out, "a producer id was given out twice"
    topics = {
        topic.name: (
            topic.id,
            sorted(topic.partitions),
            dict(state.configs(ConfigResource(ResourceType.TOPIC, topic.name))),
        )
        for topic in state.topics.values()
    }
    partitions = {
        TopicPartition(topic.name, index): _look_at(broker, TopicPartition(topic.name, index))
        for topic in state.topics.values()
        for index in topic.partitions
    }
    return Seen(topics, partitions, _offsets(desk), _transactions(desk), _send_again(broker, scene.last_batch))


def _look_at(broker: BrokerState, partition: TopicPartition) -> SeenPartition | str:
    try:
        log = broker.partition(*partition)
        records = tuple(_records(log))
        aborted = log.aborted_transactions(log.log_start_offset, log.last_stable_offset)
    except (KafkaStorageError, CorruptMessage):
        return OFFLINE
    committed = []
    for record, producer_id, is_control in records:
        is_aborted = any(
            producer_id == each.producer_id and each.first_offset <= record.offset <= each.last_offset
            for each in aborted
        )
        if not is_control and not is_aborted and record.offset < log.last_stable_offset:
            committed.append(record)
    return SeenPartition(
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        tuple(record for record, _, _ in records),
        tuple(committed),
    )


def _records(log: PartitionLog) -> Iterator[tuple[SeenRecord, int, bool]]:
    """As a client reads them. Raises CorruptMessage if the broker says that it is damaged."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        data = log.read(offset, 1 << 20, upper_bound=log.high_watermark).read_all()
        headers, good_bytes = kernel.scan(data, 0, len(data), True)
        assert good_bytes == len(data), f"served: a wrong checksum behind offset {offset}"
        position = 0
        for header in headers:
            for record in decode_records(memoryview(data)[position : position + header.size_bytes]):
                if record.offset >= offset:
                    seen = SeenRecord(record.offset, header.leader_epoch, record.key, record.value)
                    yield seen, header.producer_id, header.is_control
            position += header.size_bytes
            offset = max(offset, header.next_offset)
        if not headers:
            return


def _offsets(desk: Desk) -> object:
    wanted = [{"name": name, "partition_indexes": [0]} for name in ("orders", "stock")]
    asked = {"groups": [{"group_id": GROUP, "topics": wanted}], "require_stable": True}
    (answer,) = desk.ask("offset_fetch", 8, asked)["groups"]
    if answer["error_code"]:
        return OFFLINE
    return {topic["name"]: [each["committed_offset"] for each in topic["partitions"]] for topic in answer["topics"]}


def _transactions(desk: Desk) -> object:
    try:
        return listed(desk)
    except AssertionError:
        return OFFLINE


def _send_again(broker: BrokerState, batch: bytes) -> object:
    try:
        log = broker.partition(*STOCK)
        again = bytearray(batch)
        appended = log.append(again, kernel.parse_header(again), leader_epoch=0, now_ms=NOW_MS)
    except KafkaStorageError:
        return OFFLINE
    except KafkaError as error:
        return error.name
    return appended.duplicate, appended.base_offset


# --- damage ---


Damage = Callable[[Path, list[Path]], bool]
"""Damages the file; given also what it was before, the newest first. Whether there was anything to damage."""


def delete(file: Path, _: list[Path]) -> bool:
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()
    return True


def empty(file: Path, _: list[Path]) -> bool:
    had = file.stat().st_size > 0
    file.write_bytes(b"")
    return had


def cut(part: float) -> Damage:
    def damage(file: Path, _: list[Path]) -> bool:
        data = file.read_bytes()
        file.write_bytes(data[: min(int(len(data) * part), len(data) - 1)] if data else b"")
        return bool(data)

    return damage


def flip(part: float, bit: int) -> Damage:
    def damage(file: Path, _: list[Path]) -> bool:
        data = bytearray(file.read_bytes())
        if data:
            data[min(int(len(data) * part), len(data) - 1)] ^= 1 << bit
            file.write_bytes(data)
        return bool(data)

    return damage


def put_back(which: int) -> Damage:
    def damage(file: Path, older: list[Path]) -> bool:
        source = older[which]
        if not source.exists() or (source.is_file() and source.read_bytes() == file.read_bytes()):
            return False
        if source.is_file():
            shutil.copy(source, file)
        else:
            copied(source, file)
        return True

    return damage


DAMAGES: dict[str, list[Damage]] = {
    "deleted": [delete],
    "emptied": [empty],
    "cut": [cut(0.5), cut(1)],
    "a bit flipped": [flip(part / 16, part % 8) for part in range(17)],
    "an older version": [put_back(0), put_back(1)],
}

WHOLE_FOLDERS = frozenset({"deleted", "an older version"})
"""The damages that a folder can have as well as a file."""


class FileKind(NamedTuple):
    """A row of the table: what it is called, and the files of the scene that stand for it."""

    title: str
    patterns: tuple[str, ...]

    def files(self, folder: Path) -> list[str]:
        """The first in the order of names for each pattern, or the last if it begins with `newest:`."""
        found = []
        for pattern in self.patterns:
            newest, _, glob = pattern.rpartition(":")
            matches = sorted(str(path.relative_to(folder)) for path in folder.glob(glob))
            if matches:
                found.append(matches[-1] if newest else matches[0])
        return found


GROWING_LOG = FileKind("`.log`, growing", ("newest:orders-0/*.log", "newest:__consumer_offsets-0/*.log"))
WHOLE_PARTITION = FileKind("a partition's folder, all of it", ("orders-0", "__consumer_offsets-0"))
KINDS = [
    FileKind("`meta.properties`", ("meta.properties",)),
    FileKind("`bootstrap.checkpoint`, of Kafka", ("bootstrap.checkpoint",)),
    FileKind("`metadata-end-offset-checkpoint`", ("metadata-end-offset-checkpoint",)),
    FileKind("`recovery-point-offset-checkpoint`", ("recovery-point-offset-checkpoint",)),
    FileKind("`log-start-offset-checkpoint`", ("log-start-offset-checkpoint",)),
    FileKind("`cleaner-offset-checkpoint`", ("cleaner-offset-checkpoint",)),
    FileKind("`oncelog-partitions`", ("oncelog-partitions",)),
    FileKind("`.kafka_cleanshutdown`", (".kafka_cleanshutdown",)),
    FileKind("`__cluster_metadata-0`, all of it", (METADATA,)),
    FileKind("`__cluster_metadata-0/*.log`", (f"{METADATA}/*.log",)),
    FileKind("`__cluster_metadata-0/*.checkpoint`", (f"{METADATA}/*.checkpoint", f"newest:{METADATA}/*.checkpoint")),
    FileKind("`__cluster_metadata-0/quorum-state`, of Kafka", (f"{METADATA}/quorum-state",)),
    FileKind(
        "`__cluster_metadata-0`: indexes, `.snapshot`, `leader-epoch-checkpoint`, `partition.metadata`",
        tuple(f"{METADATA}/{name}" for name in ("*.timeindex", "*.snapshot", "leader-epoch*", "partition.metadata")),
    ),
    WHOLE_PARTITION,
    FileKind("`.log`, sealed", ("orders-0/*.log", "prices-0/*.log", "stock-0/*8.log")),
    GROWING_LOG,
    FileKind("`.index`, `.timeindex`", ("orders-0/*.index", "newest:orders-0/*.index", "orders-0/*.timeindex")),
    FileKind("`.txnindex`", ("orders-0/*.txnindex", "newest:orders-0/*.txnindex")),
    FileKind("`.snapshot`", ("orders-0/*.snapshot", "newest:orders-0/*.snapshot", "newest:stock-0/*.snapshot")),
    FileKind("`leader-epoch-checkpoint`", ("orders-0/leader-epoch-checkpoint",)),
    FileKind("`partition.metadata`", ("orders-0/partition.metadata",)),
    FileKind("`oncelog-manifest`", ("orders-0/oncelog-manifest", "__consumer_offsets-0/oncelog-manifest")),
]


def cell(scene: Scene, workshop: Path, kind: FileKind, column: str, *, killed: bool) -> tuple[set[str], list[str]]:
    """The outcomes of all the damages of a kind to all the files of a kind, and what was served in spite of damage."""
    source = scene.killed if killed else scene.stopped
    outcomes, served = set(), []
    for name in kind.files(source):
        if (source / name).is_dir() and column not in WHOLE_FOLDERS:
            continue
        for number, damage in enumerate(DAMAGES[column]):
            folder = copied(source, workshop)
            if not damage(folder / name, [older / name for older in scene.older]):
                continue
            may_be_shorter = killed and (kind is GROWING_LOG or (kind is WHOLE_PARTITION and column != "deleted"))
            try:
                outcomes.add(outcome(scene, folder, name, may_be_shorter=may_be_shorter))
            except AssertionError as error:
                which = f"{name} {column} ({number}), {'killed' if killed else 'stopped'}"
                served.append(f"{which}: {str(error)[:300]}")
    return outcomes, served


RECOVERED = "recovered"
REFUSED = "refused"
PARTITION_ERROR = "partition error"
SHORTER = "shorter"


def outcome(scene: Scene, folder: Path, name: str, *, may_be_shorter: bool = False) -> str:
    """What became of the damage in a file; AssertionError if it is served. After a kill the end of a log looks like a
    write that was torn, as long as nothing after it tells otherwise."""
    desk = _started(folder)
    if isinstance(desk, OncelogError):
        said = str(desk)
        assert "oncelog doctor" in said, said
        assert name.rpartition("/")[2] in said or METADATA in said, said
        assert losses(folder), f"the doctor finds nothing wrong: {said}"
        return REFUSED
    seen, right = look(desk, scene), scene.right
    assert seen.topics == right.topics
    worst = RECOVERED
    for partition, expected in right.partitions.items():
        found = seen.partitions[partition]
        if found != expected:
            assert name.startswith(f"{partition}/") or "/" not in name, f"{name} did this to {partition}: {found}"
            worst = _judge(found, expected)
            assert worst != SHORTER or may_be_shorter, f"served: {found}"
    hurt = {partition for partition in right.partitions if seen.partitions[partition] != right.partitions[partition]}
    if worst == PARTITION_ERROR:
        assert losses(folder, deep=True), f"the doctor finds nothing wrong, and {hurt} cannot be read"
    if OFFSETS not in hurt:
        assert seen.offsets == right.offsets
    if TRANSACTIONS not in hurt:
        assert seen.transactions == right.transactions
    if STOCK not in hurt:
        assert seen.duplicate == right.duplicate
    return worst


def _started(folder: Path) -> Desk | OncelogError:
    try:
        return open_desk(folder)
    except OncelogError as error:
        return error
    except Exception as error:
        raise AssertionError(f"the start crashed: {error!r}") from error


def losses(folder: Path, *, deep: bool = False) -> list[Diagnosis]:
    """What the doctor says that is lost."""
    found = check_up(FileStorage(), str(folder), deep=deep)
    return [each for each in found if each.finding.severity is Severity.LOSS]


def _judge(found: SeenPartition | str, expected: SeenPartition | str) -> str:
    if found == OFFLINE:
        return PARTITION_ERROR
    assert isinstance(found, SeenPartition)
    assert isinstance(expected, SeenPartition)
    assert found.end_offset < expected.end_offset, f"served: {found}"
    assert found.start_offset == expected.start_offset
    assert found.records == expected.records[: len(found.records)], f"served: {found}"
    assert found.committed == expected.committed[: len(found.committed)], f"served: {found}"
    return SHORTER
