"""Files that are well-formed and false: each one beside the batches of a partition, and beside the partitions of a data
folder. The batches are what is true. What can be derived from them is rebuilt, what cannot is refused with the name of
the file; no good record becomes unreadable, none is cut off, and no answer is a lie.

Some are no hints, but the only ones that know. Where a log starts is its manifest's to say, which has a checksum; in a
folder without manifests, as Kafka leaves it, it is the checkpoint's, and the aborted transactions and the producers are
those of their files."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from oncelog.log import checkpoints, manifest, partition_register, producer_snapshot
from oncelog.log.cleaning_schedule import CLEANER_OFFSET_FILE
from oncelog.log.inspection import Finding, Severity, inspect_data_folder
from oncelog.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.manifest import Manifest, SegmentEntry
from oncelog.log.partition_register import Registered
from oncelog.log.producer_state import ProducerEntry
from oncelog.types import TopicPartition
from tests.log.damaging import DAMAGED, DELETED, FOLDER, OTHER, TOPIC_IDS, Template, make_template, verdict
from tests.log.driver import START_MS
from tests.support.faulty_storage import FaultyStorage

Rows = list[list[int]]
Forgeries = Iterator[tuple[str, bytes]]

FAR = 10**6
"""Behind the end of the log."""


INCOMPLETE = ("5 1000000", "epoch-checkpoint: ", ": 0 20, 2 40", ": 2 80")
"""Epochs that lack the beginning, or go on behind the end: as far as they go they are true. Nobody need hear of it."""


def text(*lines: str) -> bytes:
    return checkpoints.encode_lines(lines)


# --- beside the batches ---


def false_epochs(content: bytes) -> Forgeries:
    """The log has epoch 0 from offset 7 to 39, then 2."""
    for told in (
        "",
        "0 7",
        "2 7",
        "2 80",
        "2147483647 7",
        "0 7, 2 41",
        "0 7, 2 39",
        "0 7, 2 12",
        "0 7, 2 80",
        "0 7, 3 40",
        "1 7, 2 40",
        "0 20, 2 40",
        "0 7, 1 20, 2 40",
        "0 7, 2 40, 9 60",
        "0 7, 2 40, 2147483647 81",
        "0 0, 1 1, 2 2, 3 3, 4 4",
        "0 7, 2 40, 5 1000000",  # which nobody believes, and which contradicts nothing
    ):
        yield told, text(*filter(None, told.split(", ")))


def of_rows(entry: struct.Struct, content: bytes, changes: dict[str, Callable[[Rows], object]]) -> Forgeries:
    for name, change in changes.items():
        rows: Rows = [list(row) for row in entry.iter_unpack(content)]
        if rows:
            change(rows)
            yield name, b"".join(entry.pack(*row) for row in rows)


def put(column: int, value: Callable[[int], int], last: int | None = None) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        for row in rows[:last]:
            row[column] = value(row[column])

    return change


def all_as(which: int, column: int) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        for row in rows:
            row[column] = rows[which][column]

    return change


OF_ANY_INDEX: dict[str, Callable[[Rows], object]] = {
    "the first is missing": lambda rows: rows.pop(0),
    "the last is missing": lambda rows: rows.pop(),
    "all are missing": lambda rows: rows.clear(),
    "reversed": lambda rows: rows.reverse(),
    "the last is there twice": lambda rows: rows.append(list(rows[-1])),
    "zeros": lambda rows: [row.__setitem__(slice(None), [0] * len(row)) for row in rows],
    "the other column of the first": all_as(0, 1),
    "the other column of the last": all_as(-1, 1),
    "the first column of the first": all_as(0, 0),
    "the first column of the last": all_as(-1, 0),
    "one more": put(0, lambda value: value + 1),
    "one less": put(0, lambda value: value - 1),
    "three more": put(0, lambda value: value + 3),
    "the other one more": put(1, lambda value: value + 1),
    "the other two less": put(1, lambda value: value - 2),
    "negative": put(0, lambda value: -value - 5),
    "the other negative": put(1, lambda value: -value - 5),
}


def false_index(content: bytes) -> Forgeries:
    yield from of_rows(struct.Struct(">ii"), content, OF_ANY_INDEX)


def false_time_index(content: bytes) -> Forgeries:
    of_times: dict[str, Callable[[Rows], object]] = {
        "of the year 1970": put(0, lambda timestamp: timestamp % 1000),
        "all but the last of the year 1970": put(0, lambda timestamp: timestamp % 1000, -1),
        "of next year": put(0, lambda timestamp: timestamp + 365 * 86_400_000),
    }
    yield from of_rows(struct.Struct(">qi"), content, OF_ANY_INDEX | of_times)


def false_transaction_index(content: bytes) -> Forgeries:
    changes: dict[str, Callable[[Rows], object]] = {
        "the first is missing": lambda rows: rows.pop(0),
        "the last is missing": lambda rows: rows.pop(),
        "another producer": put(1, lambda producer_id: producer_id + 1),
        "it began before": put(2, lambda offset: offset - 3),
        "one that was committed": lambda rows: rows.append([0, 9, rows[-1][3] - 3, *rows[-1][3:]]),
    }
    yield from of_rows(struct.Struct(">hqqqq"), content, changes)


def false_snapshot(content: bytes) -> Forgeries:
    entries = producer_snapshot.decode(content, START_MS)
    yield "nobody", producer_snapshot.encode((), START_MS)
    yield "not all", producer_snapshot.encode(entries[1:], START_MS)
    newer = [
        ProducerEntry(each.producer_id, each.epoch + 1, batches=each.batches, last_timestamp=each.last_timestamp)
        for each in entries
    ]
    yield "in other epochs", producer_snapshot.encode(newer, START_MS)


def false_manifest(content: bytes) -> Forgeries:
    """With a checksum that is right."""
    true = manifest.decode(content)
    for name, change in {
        "starts at 0": {"log_start_offset": 0},
        "starts before 0": {"log_start_offset": -7},
        "all was flushed": {"flushed_below": FAR},
        "nothing was flushed": {"flushed_below": 0},
        "no epochs": {"epochs": ()},
        "one epoch": {"epochs": true.epochs[:1]},
        "one more epoch": {"epochs": (*true.epochs[:1], EpochEntry(1, 20), *true.epochs[1:])},
        "epochs without order": {"epochs": true.epochs[::-1]},
        "the highest epoch": {"epochs": (EpochEntry(2**31 - 1, 7),)},
        "another topic": {"topic_id": UUID(int=99)},
        "the other topic": {"topic_id": TOPIC_IDS[OTHER]},
        "a deleted topic": {"topic_id": DELETED},
        "no topic": {"topic_id": None},
        "another time": {"foreign_epoch": 5},
        "another partition": {"partition": TopicPartition("orders", 1)},
        "one more segment": {"segments": (*true.segments, SegmentEntry(FAR))},
        "without the first segment": {"segments": true.segments[1:]},
        "without the second segment": {"segments": true.segments[:1] + true.segments[2:]},
        "without the last segment": {"segments": true.segments[:-1]},
        "without segments": {"segments": ()},
        "segments without order": {"segments": true.segments[::-1]},
        "another snapshot": {"snapshot_crc": 5},
        "closed later": {"end_offset": FAR},
        "closed earlier": {"end_offset": 30},
        "not closed": {"end_offset": -1},
    }.items():
        yield name, manifest.encode(true._replace(**change))  # type: ignore[arg-type]
    for number in (0, 1, -1):
        for column, value in zip(SegmentEntry._fields[1:], (1, 7, 5, 5, 77, 7, 5), strict=True):
            yield f"{column} of segment {number}", manifest.encode(with_segment(true, number, column, value))


def with_segment(true: Manifest, number: int, column: str, value: int) -> Manifest:
    segments = list(true.segments)
    segments[number] = segments[number]._replace(**{column: value})
    return true._replace(segments=tuple(segments))


def false_topic_id(content: bytes) -> Forgeries:
    for name, topic_id in (("nobody's", UUID(int=99)), ("the other's", TOPIC_IDS[OTHER]), ("deleted", DELETED)):
        storage = FaultyStorage()
        checkpoints.begin_topic_id(storage, "x", topic_id)
        yield name, bytes(storage.content(f"x/{checkpoints.PARTITION_METADATA_FILE}"))


# --- beside the partitions ---


def false_offsets(content: bytes) -> Forgeries:
    for offset in (-5, 0, 3, 20, 41, 81, FAR, 2**63 - 1, 2**70):
        yield str(offset), text(f"{DAMAGED.topic} {DAMAGED.partition} {offset}", "other 0 0")
    yield "twice", text("orders 0 20", "orders 0 5")
    yield "of others", text("orders 1 20", "nobody 0 5")
    yield "of nobody", text()


def false_register(content: bytes) -> Forgeries:
    there = [Registered(topic_partition, topic_id) for topic_partition, topic_id in TOPIC_IDS.items()]
    for name, lines in {
        "nobody": [],
        "without this one": there[1:],
        "with another id": [there[0]._replace(topic_id=UUID(int=99)), there[1]],
        "deleted": [*there, Registered(TopicPartition("orders", -1), TOPIC_IDS[DAMAGED])],
        "another deleted": [*there, Registered(TopicPartition("orders", -1), UUID(int=99))],
    }.items():
        storage = FaultyStorage()
        register = partition_register.PartitionRegister(storage, "x")
        for line in lines:
            register.add(line)
        yield name, bytes(storage.content(f"x/{partition_register.FILE_NAME}")) if lines else b""


BESIDE_BATCHES: dict[str, Callable[[bytes], Forgeries]] = {
    EPOCHS_FILE: false_epochs,
    ".index": false_index,
    ".timeindex": false_time_index,
    ".txnindex": false_transaction_index,
    ".snapshot": false_snapshot,
    manifest.FILE_NAME: false_manifest,
    checkpoints.PARTITION_METADATA_FILE: false_topic_id,
}
BESIDE_PARTITIONS: dict[str, Callable[[bytes], Forgeries]] = {
    checkpoints.RECOVERY_POINT_FILE: false_offsets,
    checkpoints.LOG_START_OFFSET_FILE: false_offsets,
    CLEANER_OFFSET_FILE: false_offsets,
    partition_register.FILE_NAME: false_register,
}
KINDS = BESIDE_BATCHES | BESIDE_PARTITIONS
WITHOUT_MANIFESTS = (EPOCHS_FILE, ".index", ".timeindex", checkpoints.RECOVERY_POINT_FILE, CLEANER_OFFSET_FILE)


@pytest.fixture(scope="module", params=["stopped", "killed", "stopped, without manifests", "killed, without manifests"])
def template(request: pytest.FixtureRequest) -> Template:
    made = make_template(is_killed=request.param.startswith("killed"))
    if "without" in request.param:
        for path in made.disk.paths(""):
            if path.endswith((manifest.FILE_NAME, partition_register.FILE_NAME)):
                made.disk.remove(path)
    return made


def has_manifests(template: Template) -> bool:
    return bool(template.disk.paths(manifest.FILE_NAME))


def forged(template: Template, kind: str) -> Iterator[tuple[str, str, FaultyStorage]]:
    """What is wrong, in which file, and the data folder with it."""
    paths = [path for path in template.files() if path.endswith(kind)]
    for path in [f"{FOLDER}/{kind}"] if kind in BESIDE_PARTITIONS else paths:
        content = bytes(template.disk.content(path)) if template.disk.exists(path) else b""
        for name, changed in KINDS[kind](content):
            if changed != content:
                disk = template.disk.copy()
                disk.open(path, create=True)
                disk.content(path)[:] = changed
                yield f"{path}: {name}", path, disk


def judge(template: Template, path: str, disk: FaultyStorage, caplog: pytest.LogCaptureFixture) -> str:
    """What the doctor finds before the start must be what the start does."""
    findings = inspect_data_folder(disk, FOLDER, TOPIC_IDS, verify_batches=True)
    caplog.clear()
    found = verdict(template, disk, may_end_early=False)
    file = path.rpartition("/")[2]
    if found == "offline":
        return "right" if file in caplog.text and any(file in each.problem for each in losses(findings)) else "no blame"
    return "the doctor calls records lost" if losses(findings) else found


def losses(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.severity is Severity.LOSS]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_false_is_served_and_nothing_true_is_refused(
    template: Template, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    if not has_manifests(template) and kind not in WITHOUT_MANIFESTS:
        return
    verdicts = {what: judge(template, path, disk, caplog) for what, path, disk in forged(template, kind)}
    assert verdicts
    assert {what: found for what, found in verdicts.items() if found != "right"} == {}


def test_false_epochs_are_told_of_once_and_rebuilt(template: Template, caplog: pytest.LogCaptureFixture) -> None:
    for what, path, disk in forged(template, EPOCHS_FILE):
        if what.endswith(INCOMPLETE if not has_manifests(template) else ("5 1000000",)):
            continue
        findings = [each for each in inspect_data_folder(disk, FOLDER, TOPIC_IDS) if each.path == path]
        assert [each.severity for each in findings] == [Severity.REPAIRED_AT_START], what
        caplog.clear()
        assert verdict(template, disk, may_end_early=False) == "right"
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1, what
        assert path in warnings[0]
        assert disk.content(path) == template.disk.content(path), what
        caplog.clear()
        assert verdict(template, disk, may_end_early=False) == "right"
        assert EPOCHS_FILE not in caplog.text, "and it stays so"


def test_a_false_start_of_a_folder_without_manifests(template: Template) -> None:
    """Behind the end of the log: it would put all records out of use."""
    if has_manifests(template):
        return
    disk = template.disk.copy()
    disk.content(f"{FOLDER}/{checkpoints.LOG_START_OFFSET_FILE}")[:] = text(f"orders 0 {FAR}")
    assert verdict(template, disk, may_end_early=False) == "offline"
    (loss,) = losses(inspect_data_folder(disk, FOLDER, TOPIC_IDS))
    assert checkpoints.LOG_START_OFFSET_FILE in loss.problem
