"""Which position counts: the last one of this spool that was committed, whatever lies around it in the log."""

from __future__ import annotations

import pytest

from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.identity import ENTRIES_PER_LIFE, SpoolIdentity, decode_identity
from oncelog.client.spool.positions import Position, PositionSearch, decode_position
from oncelog.records.batch import build_batch, build_control_batch
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition

OURS = SpoolIdentity("billing-1", "a folder", "positions", 3)
ANOTHER_FOLDER = SpoolIdentity("billing-1", "another folder", "positions", 3)
ANOTHER_ID = SpoolIdentity("billing-2", "a folder", "positions", 3)
ORDERS = TopicPartition("orders", 0)


def at(entry: int) -> Position:
    return Position({ORDERS: entry})


class Log:
    def __init__(self) -> None:
        self._bytes = bytearray()
        self.end = 0

    def write(self, producer_id: int, position: Position, identity: SpoolIdentity = OURS) -> Log:
        key, value = position.encode(identity)
        return self.write_raw(producer_id, key, value)

    def write_raw(self, producer_id: int, key: bytes | None, value: bytes | None, *, transactional: bool = True) -> Log:
        records = [(0, key, value, ())]
        return self._append(
            build_batch(
                records,
                base_offset=self.end,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=transactional,
            )
        )

    def mark(self, producer_id: int, *, commit: bool) -> Log:
        marker = ControlMarker(commit, 0)
        return self._append(
            build_control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=0, base_offset=self.end)
        )

    def _append(self, batch: bytearray) -> Log:
        self._bytes += batch
        self.end += 1
        return self

    def found(self) -> Position | None:
        search = PositionSearch(OURS)
        assert search.read(memoryview(bytes(self._bytes))) == self.end
        return search.found


def test_what_is_encoded_is_decoded_again() -> None:
    position = Position({ORDERS: 5, TopicPartition("orders", 11): 2**33, TopicPartition("ü", 0): 0})
    _, value = position.encode(OURS)
    assert decode_position(value, OURS) == position


@pytest.mark.parametrize("other", [ANOTHER_FOLDER, ANOTHER_ID], ids=["another folder", "another id"])
def test_positions_of_others_do_not_count(other: SpoolIdentity) -> None:
    assert at(5).encode(other)[0] != at(5).encode(OURS)[0], "compaction keeps both"
    assert Log().write(1, at(5)).mark(1, commit=True).write(2, at(9), other).mark(2, commit=True).found() == at(5)


@pytest.mark.parametrize("rubbish", [None, b"", b"{", b"[]", b"7", b'{"transactional_id": "billing-1"}'])
def test_rubbish_is_passed_by(rubbish: bytes | None) -> None:
    log = Log().write(1, at(5)).mark(1, commit=True).write_raw(2, b"key", rubbish).mark(2, commit=True)
    assert log.found() == at(5)


def test_the_last_committed_one_counts() -> None:
    log = Log().write(1, at(5)).mark(1, commit=True).write(1, at(7)).mark(1, commit=True)
    log.write(1, at(8)).mark(1, commit=False)
    assert log.found() == at(7)


def test_one_without_an_end_does_not_count() -> None:
    assert Log().write(1, at(5)).found() is None


def test_the_marker_of_another_producer_decides_nothing() -> None:
    assert Log().write(1, at(5)).mark(2, commit=True).found() is None


def test_a_later_producer_id_goes_on() -> None:
    log = Log().write(1, at(5)).mark(1, commit=True).write(2, at(7)).mark(2, commit=True).mark(1, commit=False)
    assert log.found() == at(7)


def test_records_outside_of_transactions_do_not_count() -> None:
    key, value = at(5).encode(OURS)
    assert Log().write_raw(1, key, value, transactional=False).mark(1, commit=True).found() is None


def test_a_batch_that_is_cut_off_is_left_for_the_next_reading() -> None:
    batch = build_batch([(0, None, b"x", ())], base_offset=4)
    search = PositionSearch(OURS)
    assert search.read(memoryview(bytes(batch) + bytes(batch)[:-1])) == 5
    assert search.read(memoryview(bytes(batch)[:-1])) is None


def test_each_life_counts_from_a_number_of_its_own() -> None:
    second = OURS.next_life()
    assert (OURS.first_entry, second.first_entry) == (0, ENTRIES_PER_LIFE)
    assert decode_identity(second.encode(), "path") == second


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"spool_id": "a folder"}', b'{"what": 1}'])
def test_an_identity_that_cannot_be_read_is_named(damaged: bytes) -> None:
    with pytest.raises(SpoolError, match="the/path cannot be read"):
        decode_identity(damaged, "the/path")
