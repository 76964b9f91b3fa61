from __future__ import annotations

import pytest

from oncelog.client.isolation import FetchedRecords
from oncelog.errors import CorruptMessage
from oncelog.records.batch import build_batch, build_control_batch
from oncelog.records.model import ControlMarker
from oncelog.types import IsolationLevel

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def batch(
    base_offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False, codec: int = 0
) -> bytes:
    numbered = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    records = [(1000, None, value, ()) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, transactional=transactional, codec=codec, **numbered))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        build_control_batch(
            ControlMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1000, base_offset=offset
        )
    )


def read(data: bytes, offset: int, isolation: IsolationLevel, aborted: list[tuple[int, int]]) -> list[bytes | None]:
    return [record.value for record in FetchedRecords(memoryview(data), offset, isolation, aborted)]


INTERLEAVED = (
    batch(0, b"a0", producer_id=1, transactional=True)
    + batch(1, b"b1", producer_id=2, transactional=True)
    + batch(2, b"plain2")
    + marker(3, 1, commit=False)
    + batch(4, b"a4", producer_id=1, transactional=True)
    + marker(5, 2, commit=True)
    + marker(6, 1, commit=True)
)
ABORTED = [(1, 0)]


def test_uncommitted_readers_see_everything_but_markers() -> None:
    assert read(INTERLEAVED, 0, UNCOMMITTED, ABORTED) == [b"a0", b"b1", b"plain2", b"a4"]


def test_committed_readers_see_nothing_of_an_aborted_transaction_and_all_of_the_next() -> None:
    assert read(INTERLEAVED, 0, COMMITTED, ABORTED) == [b"b1", b"plain2", b"a4"]


def test_a_transaction_that_aborts_later_does_not_hide_an_earlier_one() -> None:
    data = (
        batch(0, b"first", producer_id=1, transactional=True)
        + marker(1, 1, commit=True)
        + batch(2, b"second", producer_id=1, transactional=True)
        + marker(3, 1, commit=False)
    )
    assert read(data, 0, COMMITTED, [(1, 2)]) == [b"first"]


def test_plain_records_of_a_producer_whose_transaction_aborts_are_shown() -> None:
    data = batch(0, b"plain", producer_id=1) + batch(1, b"hidden", producer_id=1, transactional=True)
    assert read(data, 0, COMMITTED, [(1, 0)]) == [b"plain"]


def test_records_before_the_wanted_offset_are_skipped() -> None:
    data = batch(0, b"0", b"1", b"2", codec=4) + batch(3, b"3")
    fetched = FetchedRecords(memoryview(data), 2, UNCOMMITTED, None)
    assert [record.offset for record in fetched] == [2, 3]


def test_the_next_fetch_starts_after_what_is_not_shown_as_well() -> None:
    fetched = FetchedRecords(memoryview(INTERLEAVED), 0, COMMITTED, ABORTED)
    assert fetched.next_offset == 7
    assert FetchedRecords(memoryview(b""), 5, COMMITTED, None).next_offset == 5


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    data = batch(0, b"0") + batch(1, b"1")[:-3]
    fetched = FetchedRecords(memoryview(data), 0, UNCOMMITTED, None)
    assert [record.value for record in fetched] == [b"0"]
    assert fetched.next_offset == 1


def test_a_damaged_batch_is_not_read() -> None:
    damaged = bytearray(batch(0, b"0123456789"))
    damaged[-2] ^= 1
    with pytest.raises(CorruptMessage, match="offset 0"):
        FetchedRecords(memoryview(damaged), 0, UNCOMMITTED, None)
