"""The spool's own part in transactions: whose it is, from where it counts, what a commit settles."""

from __future__ import annotations

import pytest

from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.identity import ENTRIES_PER_LIFE, FILE_NAME, SpoolIdentity
from oncelog.client.spool.spool import Recovery, Spool, SpoolConfig
from oncelog.types import TopicPartition
from tests.client.spool.driver import DIRECTORY
from tests.support.faulty_storage import FaultyStorage

POSITIONS = "positions"
IDENTITY = SpoolIdentity("billing-1", "a folder", POSITIONS, 3)
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)


def opened(storage: FaultyStorage, transactional_id: str | None = "billing-1") -> tuple[Spool, Recovery]:
    spool, recovery = Spool.open(storage, DIRECTORY, SpoolConfig(100_000))
    spool.open_for(transactional_id, POSITIONS)
    return spool, recovery


def first_life(storage: FaultyStorage, count: int = 3) -> Spool:
    spool, _ = opened(storage)
    spool.belong_to(IDENTITY)
    append(spool, ORDERS, count)
    return spool


def append(spool: Spool, place: TopicPartition, count: int) -> list[int]:
    return [spool.append(*place, 0, None, b"value") for _ in range(count)]


def waiting(spool: Spool) -> list[tuple[str, int]]:
    found = []
    while record := spool.peek():
        found.append((record.topic, record.entry))
        spool.took(record.topic, record.partition)
    return found


def test_every_life_counts_from_a_number_of_its_own() -> None:
    storage = FaultyStorage()
    first_life(storage)
    for life in (1, 2):
        spool, recovery = opened(storage)
        assert not recovery.lost
        assert append(spool, ORDERS, 2) == [life * ENTRIES_PER_LIFE, life * ENTRIES_PER_LIFE + 1]
        assert append(spool, BILLS, 1) == [life * ENTRIES_PER_LIFE]
    spool, recovery = opened(storage)
    assert not recovery.lost
    second, third = ENTRIES_PER_LIFE, 2 * ENTRIES_PER_LIFE
    entries = [entry for topic, entry in waiting(spool) if topic == "orders"]
    assert entries == [0, 1, 2, second, second + 1, third, third + 1]


def test_numbers_that_the_power_took_are_not_given_again() -> None:
    storage = FaultyStorage()
    first_life(storage, count=5)
    spool, _ = opened(storage.after_power_loss(1))
    assert append(spool, ORDERS, 1) == [ENTRIES_PER_LIFE]


def test_a_commit_settles_what_lies_below_and_tells_where_that_is_written() -> None:
    storage = FaultyStorage()
    spool = first_life(storage)
    append(spool, BILLS, 2)
    spool.committed({ORDERS: 2, BILLS: 1, TopicPartition("gone", 0): 7}, 4711)
    for _ in range(2):  # the second time from the summary of the first
        spool, recovery = opened(storage)
        assert spool.placed == 4711
        assert recovery.waiting == 2
    assert waiting(spool) == [("orders", 2), ("bills", 1)]


def test_a_position_never_speaks_of_more_than_there_is() -> None:
    storage = FaultyStorage()
    spool = first_life(storage)
    spool.committed({ORDERS: 1_000})
    assert append(spool, ORDERS, 1) == [3]
    assert list(spool.unsettled()) == [(ORDERS, 3, 4)]


def test_the_journal_stays_small() -> None:
    storage = FaultyStorage()
    spool = first_life(storage, count=0)
    for number in range(200):
        (entry,) = append(spool, ORDERS, 1)
        spool.committed({ORDERS: entry + 1}, number)
    (journal,) = storage.paths(".journal")
    assert len(storage.content(journal).rstrip(b"\0")) < 2_000


@pytest.mark.parametrize("other", [None, "billing-2"])
def test_what_is_left_is_for_a_producer_with_the_same_id(other: str | None) -> None:
    storage = FaultyStorage()
    spool = first_life(storage)
    with pytest.raises(SpoolError, match="transactions of 'billing-1'"):
        opened(storage, other)
    spool, _ = opened(storage)
    spool.committed({ORDERS: 3})
    spool, _ = opened(storage, other)
    assert spool.identity is None
    assert not storage.paths(FILE_NAME)
