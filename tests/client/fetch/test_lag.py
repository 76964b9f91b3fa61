"""What a consumer has left to read, from what it holds: records where it has them, offsets behind."""

from __future__ import annotations

from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.lag import left_to_read
from oncelog.client.fetch.partitions import PartitionState
from oncelog.records.batch import build_batch, build_control_batch
from oncelog.records.model import ControlMarker
from oncelog.types import IsolationLevel, TopicPartition

STATE = PartitionState(TopicPartition("orders", 0))
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def records(base_offset: int, count: int, producer_id: int = -1) -> bytes:
    rows = [(0, None, b"v", ())] * count
    return bytes(build_batch(rows, base_offset=base_offset, producer_id=producer_id, transactional=producer_id >= 0))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        build_control_batch(
            ControlMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=offset
        )
    )


def fetched(offset: int, *batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> FetchedData:
    data = memoryview(b"".join(batches))
    return FetchedData(STATE, STATE.seek_count, offset, data, aborted, Frame(len(data), 1))


ABORTED_AND_MARKER = fetched(0, records(0, 4, 7), marker(4, 7, commit=False), records(5, 5), aborted=((7, 0),))


def test_records_of_what_is_held_and_offsets_behind() -> None:
    assert left_to_read([ABORTED_AND_MARKER], 0, 20, COMMITTED) == 5 + 10
    assert left_to_read([ABORTED_AND_MARKER], 0, 20, UNCOMMITTED) == 4 + 5 + 10
    assert left_to_read([ABORTED_AND_MARKER], 7, 10, COMMITTED) == 3
    assert left_to_read([], 7, 10, COMMITTED) == 3
    assert left_to_read([], 12, 10, COMMITTED) == 0


def test_what_is_in_the_users_hands_is_counted_by_offsets() -> None:
    assert left_to_read([fetched(10, records(10, 5))], 7, 15, COMMITTED) == 3 + 5
    assert left_to_read([fetched(10, records(10, 5))], 7, 9, COMMITTED) == 2


def test_what_cannot_be_read_is_counted_by_offsets() -> None:
    cut = bytearray(records(0, 5))
    cut[60] = 200  # more records than there are bytes
    assert left_to_read([fetched(0, bytes(cut))], 2, 5, COMMITTED) == 3
    assert left_to_read([fetched(0, b"rubbish")], 2, 5, COMMITTED) == 3


def test_the_inbox_tells_what_it_holds_of_a_partition() -> None:
    inbox = Inbox(1_000, lambda: None)
    other = fetched(0, records(0, 1))._replace(state=PartitionState(TopicPartition("bills", 0)))
    one, two = fetched(0, records(0, 5)), fetched(5, records(5, 5))
    inbox.put([one])
    inbox.put([other])
    inbox.put([two])
    assert inbox.take() is one
    assert inbox.held().get(STATE, []) == [one, two]
    outdated = one._replace(seek_count=one.seek_count - 1)
    inbox.put([outdated])
    assert inbox.held().get(STATE, []) == [one, two]
