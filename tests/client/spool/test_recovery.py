"""What the next process finds: open batches as they were, and damage named and kept, never skipped."""

from __future__ import annotations

import struct

import pytest

from oncelog.client.spool import journal as journals
from oncelog.client.spool.entry import decode_note, encode_entry
from oncelog.client.spool.errors import SpoolWriteFailed
from oncelog.client.spool.facts import Identity, Numbered, encode_fact
from oncelog.client.spool.frame import END, FRAME_BYTES, MARK, OLD_MARK, Frame, encode_frame, walk
from oncelog.client.spool.journal import SpoolOfAnotherVersion
from oncelog.client.spool.recovery import OpenPartition, Recovery
from oncelog.client.spool.spool import Spool, SpoolConfig, read_discarded
from tests.client.spool.driver import DIRECTORY, NOW_MS
from tests.client.spool.test_spool import CONFIG, DURABLE, US, A, B, fill, load, numbered, opened, places
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash


def reopened(storage: FaultyStorage, config: SpoolConfig = CONFIG) -> tuple[Spool, Recovery, FaultyStorage]:
    storage = storage.after_kill()
    return (*Spool.open(storage, DIRECTORY, config), storage)


def with_open_batch(storage: FaultyStorage, config: SpoolConfig = CONFIG) -> Spool:
    """Entries 0 to 5 of A: 0 and 1 settled, 2 and 3 in an open batch, 4 and 5 never sent."""
    spool = opened(storage, config)
    fill(spool, *[A] * 6)
    if request := spool.sync_request():
        request.run()
        spool.synced(request)
    load(spool)
    numbered(spool, A, 0, 2, 0)
    spool.settled(*A, 0, 2)
    numbered(spool, A, 2, 2, 2)
    return spool


def only(recovery: Recovery) -> OpenPartition:
    (partition,) = recovery.open_partitions
    return partition


def frame_start(storage: FaultyStorage, path: str, index: int) -> int:
    """Of a fact, or of an entry: notes between them are passed by. Behind the last one, where the frames end."""
    number = int(path.rpartition("/")[2].split(".")[0])
    frames = [one for one in walk(number, bytes(storage.content(path)), may_be_torn=False) if isinstance(one, Frame)]
    told = [one for one in frames if decode_note(one.body) is None]
    return told[index].position if index < len(told) else frames[-1].end


# --- open batches -----------------------------------------------------------------------------------------------------


def test_an_open_batch_comes_back_as_it_was() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    spool, recovery, _ = reopened(storage)
    (batch,) = only(recovery).batches
    assert batch.numbers == Numbered(A, 2, 2, US, 2, NOW_MS)
    assert [(record.entry, record.value, record.timestamp_ms) for record in batch.records] == [
        (2, b"." * 10, NOW_MS), (3, b"." * 10, NOW_MS),
    ]  # fmt: skip
    assert recovery.waiting == 2
    spool.resolved()
    assert places(load(spool)) == [(A, 4), (A, 5)]


def test_an_acknowledgement_that_was_not_written_leaves_the_batch_open() -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage)
    storage.fail_at(storage.operations, sticky=True)
    spool.settled(*A, 2, 2)
    _, recovery, _ = reopened(storage)
    assert [batch.numbers.first for batch in only(recovery).batches] == [2]


def test_void_batches_wait_as_new_in_their_old_place() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    spool, _, storage = reopened(storage)
    spool.void(A, 2, 4)
    spool.resolved()
    assert places(load(spool)) == [(A, 2), (A, 3), (A, 4), (A, 5)]
    assert not reopened(storage)[1].open_partitions


def test_entries_between_open_batches_go_before_the_later_one() -> None:
    """A batch was split, and only its first part had its numbers written down when the process died."""
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, *[A] * 6)
    load(spool)
    numbered(spool, A, 0, 4, 0)
    numbered(spool, A, 4, 2, 4)
    numbered(spool, A, 0, 2, 0)
    spool, recovery, _ = reopened(storage)
    assert [(batch.numbers.first, batch.follows_gap) for batch in only(recovery).batches] == [(0, False), (4, True)]
    assert spool.waiting == 4, "what lies behind the gap cannot go before it"
    spool.void(A, 4, 6)
    spool.resolved()
    assert places(load(spool)) == [(A, 2), (A, 3), (A, 4), (A, 5)]


def test_a_later_batch_that_was_settled_first_is_not_sent_again() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, *[A] * 6)
    load(spool)
    spool.numbered([Numbered(A, 0, 2, US, 0, NOW_MS), Numbered(A, 2, 2, US, 2, NOW_MS)])
    spool.settled(*A, 2, 2)
    spool, _, _ = reopened(storage)
    spool.void(A, 0, 2)
    spool.resolved()
    assert places(load(spool)) == [(A, 0), (A, 1), (A, 4), (A, 5)]
    assert spool.waiting == 0


def test_discarded_entries_are_kept_in_a_file() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    spool, _, storage = reopened(storage)
    path = spool.discard(A, 2, 4)
    spool.resolved()
    assert path == f"{DIRECTORY}/orders-0.2-3.discarded"
    assert places(read_discarded(storage.read_all(path))) == [(A, 2), (A, 3)]
    assert places(load(spool)) == [(A, 4), (A, 5)]
    spool, recovery, _ = reopened(storage)
    assert not recovery.open_partitions
    assert places(load(spool)) == [(A, 4), (A, 5)]


def test_nothing_is_discarded_if_it_cannot_be_kept() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    spool, _, storage = reopened(storage)
    storage.fail_at(storage.operations, sticky=True)
    with pytest.raises(SpoolWriteFailed, match="nothing was discarded"):
        spool.discard(A, 2, 4)
    assert len(only(reopened(storage)[1]).batches) == 1


# --- damaged records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit_at", [0, 5, 9, 20, 60])
def test_a_damaged_record_is_named_and_kept_and_the_rest_is_sent(bit_at: int) -> None:
    storage = FaultyStorage()
    fill(opened(storage), A, B, A, A, B)
    (path,) = storage.paths(".records")
    start, end = frame_start(storage, path, 2), frame_start(storage, path, 3)
    storage.content(path)[start + bit_at] ^= 4
    damaged = bytes(storage.content(path)[start:end])
    spool, recovery, storage = reopened(storage)
    (report,) = recovery.damages
    assert (report.path, report.position, report.size_bytes) == (path, start, end - start)
    assert storage.read_all(report.kept_as) == damaged
    assert f"{path} is damaged at position {start}" in str(report)
    assert recovery.lost == {A: 1}
    assert places(load(spool)) == [(A, 0), (B, 0), (A, 2), (B, 1)]
    spool, recovery, _ = reopened(storage)
    assert recovery.lost == {}, "what is lost is said once"
    assert places(load(spool)) == [(A, 0), (B, 0), (A, 2), (B, 1)]


def test_a_promised_last_record_that_rots_is_damage_and_not_a_torn_tail() -> None:
    storage = FaultyStorage()
    fill(opened(storage), A, A)
    (path,) = storage.paths(".records")
    storage.content(path)[frame_start(storage, path, 2) - 1] ^= 1
    spool, recovery, _ = reopened(storage)
    assert len(recovery.damages) == 1
    assert places(load(spool)) == [(A, 0)]


def test_a_torn_last_record_is_cut() -> None:
    storage = FaultyStorage()
    fill(opened(storage), A, A)
    (path,) = storage.paths(".records")
    end = frame_start(storage, path, 2)
    storage.content(path)[end - 3 : end] = bytes(3)
    spool, recovery, storage = reopened(storage)
    assert not recovery.damages
    assert fill(spool, A) == [1]
    assert not reopened(storage)[1].damages


def test_a_lost_file_of_records_is_noticed() -> None:
    storage = FaultyStorage()
    fill(opened(storage), *[A] * 12, size=400)
    first, *_ = storage.paths(".records")
    storage.remove(first)
    spool, recovery, _ = reopened(storage)
    assert recovery.lost == {A: 2}
    assert places(load(spool))[0] == (A, 2)


def test_an_open_batch_with_a_damaged_record_is_handed_out_incomplete() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    (path,) = storage.paths(".records")
    storage.content(path)[frame_start(storage, path, 2) + 30] ^= 1
    spool, recovery, storage = reopened(storage)
    (batch,) = only(recovery).batches
    assert not batch.is_complete
    assert [record.entry for record in batch.records] == [3]
    spool.void(A, 2, 4)
    spool.resolved()
    assert places(load(spool)) == [(A, 3), (A, 4), (A, 5)]
    assert spool.waiting == 0


# --- damaged journals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_a_damaged_journal_leaves_the_fate_of_all_open_entries_in_doubt(frame: int) -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage)
    numbered(spool, A, 4, 1, 4)
    (path,) = storage.paths(".journal")
    position = frame_start(storage, path, frame)
    storage.content(path)[position + 15] ^= 1
    for _ in range(2):  # until somebody decides, it stays so
        spool, recovery, storage = reopened(storage)
        assert only(recovery).batches == ()
        assert only(recovery).doubted[-1][1] == 6
        assert recovery.waiting == 0
    spool.void(A, *only(recovery).doubted[0])
    spool.resolved()
    assert places(load(spool))[-1] == (A, 5)
    assert [one.position for one in Spool.open(storage, DIRECTORY, CONFIG)[1].damages] == []


def test_a_damaged_journal_is_kept() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    (path,) = storage.paths(".journal")
    storage.content(path)[frame_start(storage, path, 1) + 15] ^= 1
    spool, recovery, storage = reopened(storage)
    (report,) = recovery.damages
    assert report.path == path
    assert not storage.exists(report.kept_as), "nothing is changed while there is a question"
    spool.resolved()
    assert storage.exists(report.kept_as)


def test_a_missing_journal_leaves_all_in_doubt() -> None:
    storage = FaultyStorage()
    with_open_batch(storage)
    storage.remove(storage.paths(".journal")[0])
    assert only(reopened(storage)[1]).doubted == ((0, 6),)


def test_without_the_journal_what_has_no_file_any_more_was_settled() -> None:
    storage = FaultyStorage()
    spool = opened(storage)
    fill(spool, *[A] * 16, size=400)
    load(spool)
    numbered(spool, A, 0, 10, 0)
    spool.settled(*A, 0, 10)
    storage.remove(storage.paths(".journal")[0])
    (path, *_) = storage.paths(".records")
    assert int(path.rpartition("/")[2].split(".")[0]) > 1
    recovery = reopened(storage)[1]
    assert recovery.lost == {}
    ((first, end),) = only(recovery).doubted
    assert 0 < first <= 10
    assert end == 16


def test_a_torn_journal_is_no_damage() -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage)
    storage.crash_at(storage.operations, torn=True)
    with pytest.raises(SimulatedCrash):
        numbered(spool, A, 4, 1, 4)
    spool, recovery, _ = reopened(storage)
    assert not recovery.damages
    assert [batch.numbers.first for batch in only(recovery).batches] == [2]
    assert only(recovery).doubted == ()


def test_a_hole_that_a_power_failure_left_in_the_unsynced_tail_is_no_doubt() -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage, DURABLE)
    (path,) = storage.paths(".journal")
    start = frame_start(storage, path, 99)
    spool.settled(*A, 2, 1)
    end = frame_start(storage, path, 99)
    spool.settled(*A, 3, 1)
    storage.content(path)[start:end] = bytes(end - start)
    _, recovery, _ = reopened(storage, DURABLE)
    assert [batch.numbers.first for batch in only(recovery).batches] == [2]
    assert only(recovery).doubted == ()


def test_a_hole_in_what_was_synced_is_doubt() -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage, DURABLE)
    (path,) = storage.paths(".journal")
    start = frame_start(storage, path, 99)
    spool.settled(*A, 2, 1)
    numbered(spool, A, 4, 1, 4)
    numbered(spool, A, 5, 1, 5)
    assert storage.paths(".journal") == [path]
    storage.content(path)[start + 15] ^= 1
    assert only(reopened(storage, DURABLE)[1]).doubted


def test_a_journal_that_could_not_be_completed_is_not_written_behind() -> None:
    """The new one may be what the next process reads, so the old one must not go on."""
    storage = FaultyStorage()
    spool = with_open_batch(storage, DURABLE)
    with pytest.raises(SpoolWriteFailed, match="open the spool again"):  # noqa: PT012
        for producer_id in range(50):
            storage.fail_at(storage.operations + 7)  # syncing the folder, in the call with which the journal rolls
            spool.numbered([Numbered(A, 2, 2, Identity(producer_id, 0), 0, NOW_MS)])
    (batch,) = only(reopened(storage, DURABLE)[1]).batches
    assert batch.numbers.identity.producer_id == producer_id - 1


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FaultyStorage()
    with monkeypatch.context() as patch:
        patch.setattr(journals, "VERSION", 3)
        opened(storage)
    with pytest.raises(SpoolOfAnotherVersion, match="has format 3"):
        opened(storage)


# --- the first format -------------------------------------------------------------------------------------------------


def old_frames(number: int, bodies: list[bytes]) -> bytes:
    data = b""
    for body in bodies:
        data += encode_frame(number, len(data), body).replace(MARK, OLD_MARK).removesuffix(END)
    return data


def old_folder(*, is_torn: bool = False) -> FaultyStorage:
    """Three records, of which the first is in an open batch; as the first format had it."""
    entries = [encode_entry(b"orders", 0, entry, NOW_MS, None, b"old", ()) for entry in range(3)]
    header = struct.pack(">8sHBQ", b"journal ", 1, 0, 12 + 19)
    fact = bytes(8) + encode_fact(Numbered(A, 0, 1, US, 0, NOW_MS))
    storage = FaultyStorage()
    storage.make_directory(DIRECTORY)
    for name, data in (
        ("00000000000000000004.journal", old_frames(4, [header, fact])),
        ("00000000000000000007.records", old_frames(7, entries)[: -5 if is_torn else None]),
    ):
        storage.open(f"{DIRECTORY}/{name}", create=True).append(data)
    return storage


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_folder_of_the_first_format_is_opened(is_torn: bool) -> None:
    storage = old_folder(is_torn=is_torn)
    entries = [(A, 1)] if is_torn else [(A, 1), (A, 2)]
    for _ in range(2):  # by then with a journal of this format
        spool, recovery, storage = reopened(storage)
        assert not recovery.damages
        assert [(one.numbers.first, one.is_complete) for one in only(recovery).batches] == [(0, True)]
        assert places(load(spool)) == entries
    assert fill(spool, A) == [len(entries) + 1]
    spool, recovery, storage = reopened(storage)
    assert not recovery.damages
    assert places(load(spool)) == [*entries, (A, len(entries) + 1)]


def test_a_file_of_the_first_format_that_is_cut_later_is_named() -> None:
    _, _, storage = reopened(old_folder())
    (path,) = storage.paths("7.records")
    del storage.content(path)[-5:]
    assert [one.path for one in reopened(storage)[1].damages][-1] == path


def test_notes_that_went_with_the_power_are_no_damage() -> None:
    storage = FaultyStorage()
    spool = with_open_batch(storage, DURABLE)
    (path,) = storage.paths(".records")
    start = frame_start(storage, path, 5)
    start += FRAME_BYTES + int.from_bytes(storage.content(path)[start + 4 : start + 8])
    end = frame_start(storage, path, 99)
    assert start < end
    storage.content(path)[start:end] = bytes(end - start)
    assert spool.waiting == 0
    assert not reopened(storage, DURABLE)[1].damages
