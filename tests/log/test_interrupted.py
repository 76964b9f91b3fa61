from __future__ import annotations

import errno

import pytest

from oncelog.log.config import COMPACT, LogConfig
from oncelog.log.interrupted import remove_orphans, settle_interrupted
from oncelog.log.partition_log import PartitionLog
from oncelog.log.segment import Segment
from oncelog.log.segment_files import CLEANED_SUFFIX, SWAP_SUFFIX
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.records import kernel
from oncelog.records.batch import Record
from tests.log.driver import DIRECTORY, PARTITION, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash

CONFIG = LogConfig(
    segment_bytes=1000,
    index_interval_bytes=200,
    cleanup_policy=frozenset({COMPACT}),
    file_delete_delay_ms=0,
)
COUNT = 60


def open_log(storage: FaultyStorage) -> PartitionLog:
    return PartitionLog.open(storage, DIRECTORY, PARTITION, CONFIG, now_ms=START_MS, clean=False)


def written() -> tuple[FaultyStorage, PartitionLog]:
    storage = FaultyStorage()
    log = open_log(storage)
    for number in range(COUNT):
        append(log, make_batch([b"%d" % number], timestamp_ms=START_MS + number))
    request = log.flush_request()
    assert request is not None
    request.run()
    log.flushed(request, START_MS)
    return storage, log


def clean(storage: FaultyStorage, log: PartitionLog, count: int = 3) -> tuple[list[Segment], list[Segment]]:
    """Compact the first segments by leaving out the odd offsets, into two, as the cleaner does; old and new."""
    old = log.segments[:count]
    new = []
    for group in (old[:-1], old[-1:]):
        segment = Segment(storage, DIRECTORY, group[0].base_offset, CONFIG, now_ms=START_MS, suffix=CLEANED_SUFFIX)
        segment.create()
        for source in group:
            data = storage.content(source.path)
            position = 0
            for header in kernel.scan(data, 0, len(data), True)[0]:
                if header.base_offset % 2 == 0:
                    batch = data[position : position + header.size_bytes]
                    segment.append(batch, header.last_offset, header.max_timestamp, START_MS)
                position += header.size_bytes
        segment.seal()
        for path in segment.file_paths():
            storage.open(path).sync()
        new.append(segment)
    return old, new


def kept(records: list[Record], below: int) -> bool:
    """Whether everything is there, or everything but the odd offsets below `below`."""
    offsets = [record.offset for record in records]
    compacted = [offset for offset in range(COUNT) if offset % 2 == 0 or offset >= below]
    return offsets in (list(range(COUNT)), compacted)


def test_replacing_segments() -> None:
    storage, log = written()
    old, new = clean(storage, log)
    below = old[-1].base_offset + 13
    found = log.read(0, 10_000, upper_bound=COUNT)
    log.replace_segments(old, new, START_MS)
    assert [record.offset for record in read_records(log)] == [n for n in range(COUNT) if n % 2 == 0 or n >= below]
    assert kernel.scan(found.read_all(), 0, found.size_bytes, True)[1] == found.size_bytes, "a read goes on"
    for removal in log.take_removals(START_MS):
        removal.run()
    assert [path for path in storage.paths("") if path.endswith((".cleaned", ".swap", ".deleted"))] == []
    bases = [segment.base_offset for segment in (*log.segments, log.active_segment)]
    assert bases[:3] == [0, old[-1].base_offset, old[-1].base_offset + 13]
    assert {int(path[-29:-9]) for path in storage.paths(".snapshot")} == set(bases[1:]), "no snapshot without segment"
    assert kept(read_records(open_log(storage)), below)


def test_a_replacement_that_cannot_be_announced_is_undone_and_works_later(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, log = written()
    old, new = clean(storage, log)

    def no_descriptor(path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "sync_directory", no_descriptor)
        with pytest.raises(OSError, match="Too many open files"):
            log.replace_segments(old, new, START_MS)
    assert not log.offline
    assert len(read_records(log)) == COUNT
    log.replace_segments(old, new, START_MS)
    below = old[-1].base_offset + 13
    assert [record.offset for record in read_records(log)] == [n for n in range(COUNT) if n % 2 == 0 or n >= below]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_crash_anywhere_undoes_or_completes_a_replacement(seed: int | None) -> None:
    operation = 0
    while True:
        storage, log = written()
        old, new = clean(storage, log)
        below = old[-1].base_offset + 13
        storage.crash_at(storage.operations + operation)
        try:
            log.replace_segments(old, new, START_MS)
            for removal in log.take_removals(START_MS):
                removal.run()
        except SimulatedCrash:
            left = storage.after_kill() if seed is None else storage.after_power_loss(seed * 1000 + operation)
        else:
            break
        recovered = open_log(left)
        assert kept(read_records(recovered), below), left.paths("")
        assert [path for path in left.paths("") if path.endswith((".cleaned", ".swap", ".deleted"))] == []
        assert recovered.log_end_offset == COUNT
        operation += 1
    assert operation > 20


@pytest.mark.parametrize("operation", range(40))
def test_a_crash_during_that_recovery_changes_nothing(operation: int) -> None:
    storage, log = written()
    old, new = clean(storage, log)
    for segment in reversed(new):
        segment.change_suffix(CLEANED_SUFFIX, ".swap")
    storage.crash_at(storage.operations + operation)
    try:
        open_log(storage)
    except SimulatedCrash:
        storage = storage.after_kill()
    storage.heal()
    records = read_records(open_log(storage))
    below = old[-1].base_offset + 13
    assert [record.offset for record in records] == [n for n in range(COUNT) if n % 2 == 0 or n >= below]


def touch(storage: FaultyStorage, *names: str) -> None:
    for name in names:
        storage.open(f"d/{name}", create=True)


def test_what_is_left_of_removals_and_unfinished_writes_goes() -> None:
    storage = FaultyStorage()
    kept_names = ["00000000000000000007.log", "00000000000000000007.index", "leader-epoch-checkpoint"]
    touch(storage, *kept_names, "00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp")
    touch(storage, "00000000000000000007.log.cleaned", "00000000000000000007.index.cleaned")
    assert settle_interrupted(storage, "d") == sorted(kept_names)


def test_an_index_without_its_segment_goes_and_a_snapshot_stays() -> None:
    storage = FaultyStorage()
    touch(storage, "00000000000000000005.index", "00000000000000000005.timeindex", "00000000000000000005.snapshot")
    names = settle_interrupted(storage, "d")
    assert len(names) == 3, "they may be all that is left of a segment that ought to be there"
    assert remove_orphans(storage, "d", names) == ["00000000000000000005.snapshot"] == storage.list_directory("d")


def test_a_swap_above_a_cleaned_file_never_happened() -> None:
    storage = FaultyStorage()
    touch(storage, "00000000000000000000.log.cleaned", "00000000000000000009.log.swap", "00000000000000000009.log")
    assert settle_interrupted(storage, "d") == ["00000000000000000009.log"]


@pytest.mark.parametrize("renamed", range(4))
def test_what_a_swap_renamed_already_is_not_taken_for_what_it_replaces(renamed: int) -> None:
    """In the order of `Segment.change_suffix`; the old segment is gone before the first of them has its name."""
    storage = FaultyStorage()
    batch = make_batch([b"x"])
    for rank, suffix in enumerate((".timeindex", ".index", ".txnindex", ".log")):
        name = f"{DIRECTORY}/{0:020d}{suffix}"
        storage.open(name if rank < renamed else name + ".swap", create=True).append(batch if rank == 3 else b"new")
    assert settle_interrupted(storage, DIRECTORY) == [
        f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert storage.content(f"{DIRECTORY}/{0:020d}.txnindex") == b"new"


def test_a_transaction_index_of_the_replaced_segment_does_not_stay() -> None:
    storage = FaultyStorage()
    for suffix in (".timeindex.swap", ".index.swap", ".log.swap", ".txnindex"):
        storage.open(f"{DIRECTORY}/{0:020d}{suffix}", create=True).append(make_batch([b"x"]))
    assert f"{0:020d}.txnindex" not in settle_interrupted(storage, DIRECTORY)


def test_the_log_renames_in_that_order() -> None:
    storage, log = written()
    _, (segment, _) = clean(storage, log)
    segment.transaction_index.append(AbortedTransaction(1, 0, 1, 1))
    first = storage.operations
    segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
    renames = [line.split()[2].split(".")[1] for line in storage.log[first:] if " rename " in line]
    assert renames == ["timeindex", "index", "txnindex", "log"]
