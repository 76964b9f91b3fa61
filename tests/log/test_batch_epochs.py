"""What batches say of leader epochs is believed, whatever their file says; except one batch alone: no checksum covers
its epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.log.batch_epochs import (
    BatchEpochs,
    EpochRun,
    contradiction,
    corrected,
    epoch_at,
    lacks_beginning,
    with_later,
)
from oncelog.log.checkpoints import encode_lines
from oncelog.log.leader_epochs import FILE_NAME, EpochEntry
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.partition_log import PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader
from tests.log.driver import DIRECTORY, PARTITION, SMALL, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyStorage


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def headers(*epochs: int) -> list[BatchHeader]:
    """One record each, from offset 0 on."""
    found = []
    for offset, epoch in enumerate(epochs):
        batch = make_batch([b"x"])
        kernel.stamp(batch, 0, offset, epoch)
        found.append(kernel.parse_header(batch))
    return found


def told_by(epochs: tuple[int, ...], known: tuple[EpochEntry, ...] = (), sure_below: int = 0) -> list[tuple[int, ...]]:
    told = [BatchEpochs(known, sure_below) for _ in range(2)]
    for header in headers(*epochs):
        told[0].take([header])
    told[1].take(headers(*epochs))
    assert told[0].runs == told[1].runs or len(set(epochs)) > 2, "however they come"
    return [tuple(run) for run in told[0].runs]


@pytest.mark.parametrize(
    ("epochs", "runs"),
    [
        ((), []),
        ((-1, -1), []),
        ((4,), [(4, 0, 0)]),
        ((0, 0, 2, 2, 2), [(0, 0, 1), (2, 2, 4)]),
        ((0, 0, 2, 5, 5), [(0, 0, 1), (2, 2, 2), (5, 3, 4)]),
        ((0, -1, 0, 2), [(0, 0, 2), (2, 3, 3)]),
        ((0, 0, 8, 0, 0), [(0, 0, 4)]),  # a bit of one batch was flipped
        ((0, 0, 8, 2, 2), [(0, 0, 1), (2, 3, 4)]),
        ((2, 2, 0, 2), [(2, 0, 3)]),
        ((8, 0, 0), [(0, 1, 2)]),
        ((0, 0, 2, 0, 2, 2), [(0, 0, 3), (2, 4, 5)]),
    ],
)
def test_what_batches_say(epochs: tuple[int, ...], runs: list[tuple[int, ...]]) -> None:
    assert told_by(epochs) == runs


def test_of_two_batches_the_noted_one_is_right() -> None:
    zero_then_two = (EpochEntry(0, 0), EpochEntry(2, 2))
    assert told_by((0, 0, 2, 0, 2, 2), zero_then_two) == [(0, 0, 1), (2, 2, 5)]
    assert told_by((0, 0, 8, 2, 2), zero_then_two) == [(0, 0, 1), (2, 2, 4)]
    assert told_by((8, 0, 0), (EpochEntry(0, 0),)) == [(0, 0, 2)]


def test_one_batch_alone_is_not_believed_against_a_file_with_a_checksum() -> None:
    zero = (EpochEntry(0, 0),)
    assert told_by((0, 0, 8), zero) == [(0, 0, 1), (8, 2, 2)]
    assert told_by((0, 0, 8), zero, sure_below=3) == [(0, 0, 1)]
    assert told_by((0, 0, 8, 9, 9), zero, sure_below=5) == [(0, 0, 1), (9, 3, 4)]
    assert told_by((0, 0, 8, 8), zero, sure_below=4) == [(0, 0, 1), (8, 2, 3)], "two are"


RUNS = (EpochRun(0, 0, 9), EpochRun(2, 10, 19))


@pytest.mark.parametrize(
    ("entries", "start_offset", "problem"),
    [
        ("0 0, 2 10", 0, None),
        ("0 5, 2 10", 5, None),
        ("2 12", 12, None),
        ("0 0, 1 4, 2 10", 0, "it has leader epoch 1 for offset 9, and the batch there has 0"),
        ("0 0", 0, "it has leader epoch 0 for offset 10, and the batch there has 2"),
        ("1 10", 0, "it has leader epoch 1 for offset 10, and the batch there has 2"),
        ("1 15", 0, "it has leader epoch 1 for offset 10, and the batch there has 2"),  # it says: no newer before 15
        ("2 10", 0, None),
        ("2 15", 0, None),
        ("", 0, None),
    ],
)
def test_what_contradicts_batches(entries: str, start_offset: int, problem: str | None) -> None:
    assert contradiction(entries_of(entries), RUNS, start_offset) == problem


@pytest.mark.parametrize(
    ("entries", "start_offset", "lacks"),
    [("0 0, 2 10", 0, False), ("2 10", 10, False), ("2 10", 9, True), ("", 0, True)],
)
def test_a_beginning_that_is_not_noted(entries: str, start_offset: int, lacks: bool) -> None:
    assert lacks_beginning(entries_of(entries), RUNS, start_offset) == lacks


def entries_of(text: str) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*map(int, each.split())) for each in text.split(", ") if each)


def test_a_note_may_be_late_but_not_of_other_batches() -> None:
    assert with_later(entries_of("0 0"), RUNS) == entries_of("0 0, 2 10")
    assert with_later(entries_of("0 0, 1 15"), RUNS) == entries_of("0 0, 1 15"), "2 did not begin after 1"


def test_what_is_right_is_kept_as_it_was_noted() -> None:
    """Compaction took the first batches of epoch 2: the note knows better where it began."""
    compacted = (EpochRun(0, 0, 5), EpochRun(2, 13, 19))
    assert corrected(entries_of("0 0, 2 10, 9 17"), compacted, 0) == entries_of("0 0, 2 10")
    assert corrected(entries_of("0 0, 2 4"), compacted, 0) == entries_of("0 0, 2 13")
    assert corrected(entries_of("2 10"), compacted, 15) == entries_of("2 15")


def written(epochs: list[int], keep: set[int]) -> FaultyStorage:
    """Batches of one record each; those in `keep` begin a segment."""
    storage = FaultyStorage()
    log = PartitionLog.open(storage, DIRECTORY, PARTITION, SMALL, now_ms=START_MS, clean=False)
    for offset, epoch in enumerate(epochs):
        if offset in keep:
            log.roll(START_MS)
        append(log, make_batch([b"%d" % offset]), leader_epoch=epoch)
    log.close(clean=True, now_ms=START_MS)
    return storage


@given(
    steps=st.lists(st.sampled_from((0, 0, 0, 0, 1, 3)), min_size=1, max_size=24),
    rolls=st.sets(st.integers(1, 23), max_size=4),
    noted=st.dictionaries(st.integers(0, 24), st.integers(0, 9), max_size=4),
    has_manifest=st.booleans(),
    clean=st.booleans(),
    recovery_point=st.integers(0, 24),
)
def test_no_note_hides_a_record(
    steps: list[int],
    rolls: set[int],
    noted: dict[int, int],
    has_manifest: bool,
    clean: bool,
    recovery_point: int,
) -> None:
    epochs = [sum(steps[: number + 1]) for number in range(len(steps))]
    storage = written(epochs, rolls)
    pairs = zip(sorted(set(noted.values())), sorted(noted), strict=False)
    path = f"{DIRECTORY}/{FILE_NAME}"
    storage.open(path, create=True)
    storage.content(path)[:] = encode_lines(f"{epoch} {offset}" for epoch, offset in pairs)
    if not has_manifest:
        storage.remove(f"{DIRECTORY}/{MANIFEST_FILE}")
    for _ in range(2):
        log = PartitionLog.open(
            storage,
            DIRECTORY,
            PARTITION,
            SMALL,
            now_ms=START_MS,
            clean=clean,
            recovery_point=min(recovery_point, len(epochs)),
        )
        assert [int(record.value or b"") for record in read_records(log)] == list(range(len(epochs)))
        assert [epoch_at(log.leader_epochs.entries, offset) for offset in range(len(epochs))] == epochs
        assert log.recovery.truncated_bytes == 0
