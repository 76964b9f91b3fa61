from __future__ import annotations

import errno
import struct

import pytest

from oncelog.log.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex
from tests.support.faulty_storage import FaultyStorage

FILE = "data/00000000000000000100.txnindex"
FIRST = AbortedTransaction(producer_id=7, first_offset=105, last_offset=120, last_stable_offset=110)
SECOND = AbortedTransaction(producer_id=8, first_offset=110, last_offset=130, last_stable_offset=131)


@pytest.fixture
def storage() -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    return storage


def index(storage: FaultyStorage, *transactions: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex(storage, FILE, 100)
    for transaction in transactions:
        index.append(transaction)
    return index


def test_there_is_no_file_until_something_was_aborted(storage: FaultyStorage) -> None:
    empty = index(storage)
    assert empty.entries() == []
    assert empty.collect(0, 1000) == ([], False)
    assert not empty.exists


def test_entries_are_kafkas_bytes(storage: FaultyStorage) -> None:
    index(storage, FIRST, SECOND)
    assert storage.content(FILE) == struct.pack(">hqqqqhqqqq", 0, 7, 105, 120, 110, 0, 8, 110, 130, 131)
    assert TransactionIndex(storage, FILE, 100).entries() == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("start", "end", "expected", "complete"),
    [
        (100, 105, [], True),
        (100, 106, [FIRST], True),
        (120, 125, [FIRST, SECOND], True),
        (121, 131, [SECOND], True),
        (131, 200, [], False),
        (100, 200, [FIRST, SECOND], False),
    ],
)
def test_collect(
    storage: FaultyStorage, start: int, end: int, expected: list[AbortedTransaction], complete: bool
) -> None:
    assert index(storage, FIRST, SECOND).collect(start, end) == (expected, complete)


def test_truncation(storage: FaultyStorage) -> None:
    truncated = index(storage, FIRST, SECOND)
    truncated.truncate_to_offset(130)
    assert TransactionIndex(storage, FILE, 100).entries() == [FIRST]
    truncated.append(SECOND)
    assert TransactionIndex(storage, FILE, 100).entries() == [FIRST, SECOND]
    truncated.truncate_to_offset(0)
    assert not truncated.exists


@pytest.mark.parametrize("how", ["with the next one", "by itself"])
def test_what_could_not_be_written_is_known_and_written_later(storage: FaultyStorage, how: str) -> None:
    torn = index(storage, FIRST)
    storage.fail_at(storage.operations + 1, errno.EIO, torn=True)
    with pytest.raises(OSError, match="torn"):
        torn.append(SECOND)
    assert torn.entries() == [FIRST, SECOND]
    if how == "by itself":
        torn.write_out()
        assert TransactionIndex(storage, FILE, 100).entries() == [FIRST, SECOND]
    third = AbortedTransaction(9, 135, 140, 141)
    torn.append(third)
    assert TransactionIndex(storage, FILE, 100).entries() == [FIRST, SECOND, third]


@pytest.mark.parametrize(
    "damaged",
    [
        b"x",
        struct.pack(">hqqqq", 1, 7, 105, 120, 110),
        struct.pack(">hqqqq", 0, 7, 121, 120, 110),
        struct.pack(">hqqqq", 0, 7, 50, 99, 110),
    ],
    ids=["torn", "version", "backwards", "before the segment"],
)
def test_damage_is_noticed(storage: FaultyStorage, damaged: bytes) -> None:
    storage.open(FILE, create=True).append(damaged)
    with pytest.raises(CorruptTransactionIndex):
        TransactionIndex(storage, FILE, 100).entries()
