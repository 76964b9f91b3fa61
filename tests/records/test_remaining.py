"""What is left to read, against a reader that counts record by record: on random histories of transactions, markers,
compaction and answers of any size."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from oncelog.records.batch import build_batch, build_control_batch, decode_records, rebuild_batch
from oncelog.records.kernel import parse_header
from oncelog.records.model import ControlMarker
from oncelog.records.remaining import remaining_records
from oncelog.types import IsolationLevel

HISTORIES = 1_000
PRODUCERS = 3
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
PLAIN = COMMITTED
"""Records outside of transactions are committed when they are written."""


class Transaction:
    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = -1
        self.fate = OPEN


class Written(NamedTuple):
    batch: bytearray
    transaction: Transaction | None
    is_marker: bool = False


class History:
    """A partition's log, and what became of every batch in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.batches: list[Written] = []
        self.transactions: list[Transaction] = []
        self.end_offset = 0
        open_by: dict[int, Transaction] = {}
        for _ in range(self.chance.randrange(25)):
            producer_id = self.chance.randrange(PRODUCERS)
            step = self.chance.random()
            if step < 0.2:
                self._append(-1, None)
            elif step < 0.75 or producer_id not in open_by:
                if producer_id not in open_by:
                    open_by[producer_id] = Transaction(producer_id, self.end_offset)
                    self.transactions.append(open_by[producer_id])
                self._append(producer_id, open_by[producer_id])
            else:
                self._end(open_by.pop(producer_id))
        if self.chance.random() < 0.7:
            for producer_id in list(open_by):
                self._end(open_by.pop(producer_id))
        still_open = [one.first_offset for one in open_by.values()]
        self.last_stable_offset = min(still_open, default=self.end_offset)
        if self.chance.random() < 0.4:
            self._compact()

    def _append(self, producer_id: int, transaction: Transaction | None) -> None:
        count = self.chance.randrange(1, 6)
        records = [(0, b"k", b"v%d" % number, ()) for number in range(count)]
        batch = build_batch(
            records,
            base_offset=self.end_offset,
            codec=self.chance.randrange(5),
            producer_id=producer_id,
            transactional=transaction is not None,
        )
        self.batches.append(Written(batch, transaction))
        self.end_offset += count

    def _end(self, transaction: Transaction) -> None:
        is_committed = self.chance.random() < 0.5
        transaction.fate = COMMITTED if is_committed else ABORTED
        transaction.last_offset = self.end_offset
        marker = build_control_batch(
            ControlMarker(is_committed, 0),
            producer_id=transaction.producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=self.end_offset,
        )
        self.batches.append(Written(marker, transaction, is_marker=True))
        self.end_offset += 1

    def _compact(self) -> None:
        """Takes records out of batches, whole batches too; a batch may stay without records."""
        kept = []
        for written in self.batches:
            if written.is_marker or (written.transaction is not None and written.transaction.fate == OPEN):
                kept.append(written)
            elif self.chance.random() < 0.8:
                records = [one for one in decode_records(written.batch) if self.chance.random() < 0.6]
                kept.append(written._replace(batch=rebuild_batch(parse_header(written.batch), records)))
        self.batches = kept

    def end(self, isolation: IsolationLevel) -> int:
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.end_offset

    def shown(self, isolation: IsolationLevel) -> list[int]:
        """The offsets of all records that a reader is shown, found one by one."""
        found = []
        for written in self.batches:
            fate = PLAIN if written.transaction is None else written.transaction.fate
            is_shown = fate == COMMITTED or isolation is IsolationLevel.READ_UNCOMMITTED
            if is_shown and not written.is_marker:
                found += [record.offset for record in decode_records(written.batch)]
        return [offset for offset in found if offset < self.end(isolation)]

    def answer(self, offset: int, size: int) -> list[Written]:
        """A few batches from the one that holds `offset`, or the next."""
        later = [one for one in self.batches if parse_header(one.batch).last_offset >= offset]
        return later[:size]

    def aborted(self, offset: int, last_offset: int) -> list[tuple[int, int]]:
        """As a broker tells them: whatever touches the records of the answer. Kafka: TransactionIndex"""
        touching = [
            one
            for one in self.transactions
            if one.fate == ABORTED and one.last_offset >= offset and one.first_offset <= last_offset
        ]
        self.chance.shuffle(touching)
        return [(one.producer_id, one.first_offset) for one in touching]


def counted(history: History, from_offset: int, isolation: IsolationLevel) -> int:
    """Answer by answer, as whoever fetches does."""
    count, position, end = 0, from_offset, history.end(isolation)
    while position < end:
        page = history.answer(position, history.chance.randrange(1, 6))
        if not page:
            break
        batches = [(parse_header(one.batch), one.batch) for one in page]
        aborted = history.aborted(position, batches[-1][0].last_offset)
        count += remaining_records(batches, aborted, position, end, isolation)
        position = batches[-1][0].next_offset
    return count


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_as_counted_one_by_one(isolation: IsolationLevel) -> None:
    with_less = 0
    for seed in range(HISTORIES):
        history = History(seed)
        shown = history.shown(isolation)
        from_offset = history.chance.randrange(history.end_offset + 2)
        expected = sum(offset >= from_offset for offset in shown)
        assert counted(history, from_offset, isolation) == expected, f"seed {seed}, from {from_offset}"
        with_less += expected < history.end(isolation) - from_offset
    assert with_less > HISTORIES / 4, "where offsets and records differ is what this is about"


def test_a_batch_is_counted_from_the_middle_to_the_middle() -> None:
    batch = build_batch([(0, None, b"v", ())] * 10, base_offset=100)
    count = remaining_records([(parse_header(batch), batch)], (), 103, 108, IsolationLevel.READ_UNCOMMITTED)
    assert count == 5
