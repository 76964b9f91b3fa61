"""A data folder with two partitions, one of whose files a test damages, and the judge of what is served then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from oncelog.errors import CorruptMessage, KafkaStorageError
from oncelog.log.config import LogConfig
from oncelog.log.manager import LogManager
from oncelog.log.partition_log import PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import ControlMarker
from oncelog.types import TopicPartition
from tests.log.driver import START_MS, append, make_batch
from tests.support.faulty_storage import FaultyStorage

DAMAGED, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
TOPIC_IDS = {DAMAGED: UUID(int=11), OTHER: UUID(int=22)}
DELETED = UUID(int=33)
"""The id of a topic that was deleted."""
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=0)
PRODUCER, TRANSACTIONAL = 9, 77
FOLDER = "data"


def config_of(topic_partition: TopicPartition, topic_id: UUID | None) -> LogConfig | None:
    known = TOPIC_IDS.get(topic_partition)
    if topic_id not in (None, known):
        raise KafkaStorageError(f"partition.metadata has the id {topic_id}, which is nobody's: see oncelog doctor")
    return CONFIG if known is not None else None


def open_manager(storage: FaultyStorage) -> LogManager:
    manager = LogManager.open(
        storage,
        FOLDER,
        config_of=config_of,
        now_ms=START_MS,
        was_deleted=lambda topic_id: topic_id == DELETED,
        is_known=lambda topic_id: topic_id in TOPIC_IDS.values(),
    )
    for log in manager.logs.values():
        log.advance_high_watermark(log.log_end_offset)
    return manager


class Writer:
    """Writes plain records of one producer and transactions of another, every second of which is aborted."""

    def __init__(self) -> None:
        self.sequences = {PRODUCER: 0, TRANSACTIONAL: 0}
        self.transactions = 0

    def write(self, log: PartitionLog, rounds: int, leader_epoch: int) -> None:
        for _ in range(rounds):
            self.append(log, PRODUCER, leader_epoch)
            self.append(log, TRANSACTIONAL, leader_epoch)
            self.append(log, PRODUCER, leader_epoch)
            marker = ControlMarker(commit=self.transactions % 2 == 0, coordinator_epoch=0)
            log.append_marker(
                marker, producer_id=TRANSACTIONAL, producer_epoch=0, leader_epoch=leader_epoch, now_ms=START_MS
            )
            self.transactions += 1
            log.advance_high_watermark(log.log_end_offset)

    def append(self, log: PartitionLog, producer_id: int, leader_epoch: int) -> None:
        append(log, self.next_batch(producer_id), leader_epoch=leader_epoch)
        self.sequences[producer_id] += 1

    def next_batch(self, producer_id: int, ago: int = 0) -> bytearray:
        sequence = self.sequences[producer_id] - ago
        return make_batch(
            [b"%d-%d" % (producer_id, sequence) + b"." * 40],
            producer_id=producer_id,
            sequence=sequence,
            timestamp_ms=START_MS + 10 * sequence,
            transactional=producer_id == TRANSACTIONAL,
        )


def flush_sealed(log: PartitionLog) -> None:
    request = log.flush_due(START_MS)
    assert request is not None
    request.run()
    log.flushed(request, START_MS)


def answers(log: PartitionLog) -> dict[str, object]:
    """Everything that clients may ask."""
    end = log.log_end_offset
    return {
        "start": log.log_start_offset,
        "end": end,
        "records": list(batches(log)),
        "aborted": sorted(log.aborted_transactions(log.log_start_offset, end)),
        "stable": log.last_stable_offset,
        "epochs": log.leader_epochs.entries,
        "ends of epochs": [log.end_offset_for_epoch(epoch) for epoch in range(5)],
        "times": [log.find_offset_by_timestamp(START_MS + 10 * step) for step in range(0, 60, 3)],
        "newest": log.max_timestamp(),
    }


def batches(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """As a client reads: from the start, and it verifies every checksum."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 300, upper_bound=log.log_end_offset).read_all()
        headers, good_bytes = kernel.scan(data, 0, len(data), True)
        assert good_bytes == len(data), "served: a wrong checksum"
        assert headers
        assert headers[-1].next_offset > offset, "served: what was not asked for"
        position = 0
        for header in headers:
            yield header.base_offset, bytes(data[position : position + header.size_bytes])
            position += header.size_bytes
            offset = header.next_offset


@dataclass
class Template:
    """A data folder, an older state of the same, and what its partitions answer."""

    disk: FaultyStorage
    older: FaultyStorage
    writer: Writer
    answers: dict[TopicPartition, dict[str, object]]
    is_killed: bool

    @property
    def segments(self) -> int:
        return len([path for path in self.files() if path.endswith(".log")])

    def files(self) -> list[str]:
        """Every file of the damaged partition and of the data folder."""
        return [path for path in self.disk.paths("") if path.rpartition("/")[0] in (FOLDER, f"{FOLDER}/{DAMAGED}")]


def make_template(*, is_killed: bool) -> Template:
    disk = FaultyStorage()
    manager = open_manager(disk)
    writer = Writer()
    for topic_partition, topic_id in TOPIC_IDS.items():
        manager.create(topic_partition, topic_id, CONFIG, START_MS)
    writer.write(manager.logs[DAMAGED], 10, leader_epoch=0)
    Writer().write(manager.logs[OTHER], 3, leader_epoch=0)
    manager.logs[DAMAGED].delete_records(5)
    manager.stop(START_MS)
    older = disk.copy()
    manager = open_manager(disk)
    log = manager.logs[DAMAGED]
    log.delete_records(7)
    writer.write(log, 8, leader_epoch=2)
    writer.write(log, 1, leader_epoch=2)
    log.roll(START_MS)
    writer.write(log, 1, leader_epoch=2)
    for _ in range(2):
        writer.append(log, PRODUCER, 2)
    log.advance_high_watermark(log.log_end_offset)
    assert log.active_segment.transaction_index.entries()
    flush_sealed(log)
    manager.checkpoint()
    found = {topic_partition: answers(log) for topic_partition, log in manager.logs.items()}
    if not is_killed:
        manager.stop(START_MS)
    return Template(disk.copy(), older, writer, found, is_killed)


def verdict(template: Template, disk: FaultyStorage, *, may_end_early: bool) -> str:
    """Open a damaged folder and judge it: `right`, `offline`, `refused` or what is wrong."""
    manager = open_manager(disk)
    if OTHER not in manager.logs or answers(manager.logs[OTHER]) != template.answers[OTHER]:
        return "damage to one partition changed another"
    if DAMAGED in manager.report.failed:
        return "offline" if "oncelog doctor" in str(manager.report.failed[DAMAGED]) else "does not say what to do"
    log = manager.logs[DAMAGED]
    try:
        return compare(template, log, answers(log), may_end_early=may_end_early)
    except CorruptMessage:
        return "refused"


def compare(template: Template, log: PartitionLog, found: dict[str, object], *, may_end_early: bool) -> str:
    expected = template.answers[DAMAGED]
    if may_end_early and log.log_end_offset < cast(int, expected["end"]):
        return "right" if is_prefix(found, expected) else "not what was there before"
    if differing := [key for key in expected if found[key] != expected[key]]:
        return f"wrong {differing}: {[found[key] for key in differing]}"
    for ago in range(1, 6):
        if not append(log, template.writer.next_batch(PRODUCER, ago), leader_epoch=2).duplicate:
            return "a retry is stored twice"
    return "right"


def is_prefix(found: dict[str, object], expected: dict[str, object]) -> bool:
    records, all_records = cast(list[object], found["records"]), cast(list[object], expected["records"])
    aborted = [each for each in cast(Any, expected["aborted"]) if each.last_offset < found["end"]]
    return records == all_records[: len(records)] and found["aborted"] == aborted
