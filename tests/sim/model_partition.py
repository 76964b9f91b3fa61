"""One partition as a list of batches, and the broker's answer to an append, read off that list.

There is no producer state here that could go stale: what a broker remembers of a producer is found by reading the log
backwards, so truncation and leader changes carry it along by themselves. Shares no code with `oncelog.log`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

REMEMBERED_BATCHES = 5
SEQUENCE_SPAN = 2**31

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47

NO_PRODUCER = -1


class Batch(NamedTuple):
    """A record batch, its records by their values alone."""

    producer_id: int
    epoch: int
    sequence: int
    records: tuple[bytes, ...]
    is_transactional: bool = False
    is_commit: bool | None = None
    """Of a marker, which has no records and takes no offset here."""


class StoredBatch(NamedTuple):
    base_offset: int
    batch: Batch

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.batch.records)


@dataclass(frozen=True, slots=True)
class Appended:
    stored: StoredBatch


@dataclass(frozen=True, slots=True)
class Repeated:
    """In the log already: answered with where it is, not written."""

    stored: StoredBatch


@dataclass(frozen=True, slots=True)
class Refused:
    code: int


Verdict = Appended | Repeated | Refused


@dataclass(frozen=True, slots=True)
class Refuse:
    """Fault: the next append is answered with this error and not executed."""

    code: int


@dataclass(frozen=True, slots=True)
class FailAfterAppend:
    """Fault: the next append is executed, but not replicated, and answered with this error."""

    code: int


Fault = Refuse | FailAfterAppend


class ModelPartition:
    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.leader_epoch = 0
        self.log: list[StoredBatch] = []
        self.committed_end = 0
        """What every replica has: a leader change keeps it. Everything above may be lost with the leader."""
        self.torn_off: list[StoredBatch] = []
        """Batches that were in the log once and that a leader change took away, replicated ones only."""
        self.faults: deque[Fault] = deque()
        self._snapshot_end = 0
        self._forgotten_below: dict[int, int] = {}

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    @property
    def records(self) -> list[bytes]:
        """Every stored record; its position is its offset."""
        return [record for stored in self.log for record in stored.batch.records]

    def append(self, batch: Batch, *, replicated: bool, is_strict: bool = False) -> Verdict:
        """The table "the broker's answer to an append", as far as it is about idempotent producers."""
        verdict = self._judge(batch, is_strict)
        if isinstance(verdict, Appended):
            self.log.append(verdict.stored)
        if replicated and not isinstance(verdict, Refused):
            self.committed_end = max(self.committed_end, verdict.stored.end_offset)
        return verdict

    def end_transaction(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """A marker. One with a newer epoch fences what comes with the older one."""
        remembered = self._remembered(producer_id)
        last = remembered[-1].batch if remembered else Batch(producer_id, epoch, 0, ())
        if last.is_commit is is_commit and last.epoch == epoch:
            return  # written before, by a coordinator that died before it knew
        goes_on = last.sequence + len(last.records) if last.epoch == epoch else 0
        marker = Batch(producer_id, epoch, goes_on % SEQUENCE_SPAN, (), True, is_commit)
        self.log.append(StoredBatch(self.end_offset, marker))
        self.replicate()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        last = next((one.batch for one in reversed(self.log) if one.batch.producer_id == producer_id), None)
        return last is not None and last.is_transactional and last.is_commit is None and last.epoch == epoch

    def outcomes(self) -> list[tuple[bytes, bool | None]]:
        """Every record of a transaction, in order, and whether it was committed; None while that is open."""
        decided: dict[int, bool] = {}
        found: list[tuple[bytes, bool | None]] = []
        for stored in reversed(self.log):
            batch = stored.batch
            if batch.is_commit is not None:
                decided[batch.producer_id] = batch.is_commit
            found += [(record, decided.get(batch.producer_id)) for record in reversed(batch.records)]
        return found[::-1]

    def replicate(self) -> None:
        self.committed_end = self.end_offset

    def change_leader(self, leader: int, *, keep_unreplicated: bool) -> None:
        """The new leader has all that is committed, and of the rest what happened to reach it."""
        self._elect(leader)
        if not keep_unreplicated:
            self.log = [stored for stored in self.log if stored.end_offset <= self.committed_end]

    def change_leader_uncleanly(self, leader: int, lost_batches: int) -> None:
        """A replica that lags behind takes over: the last batches are gone, whoever they were acknowledged to."""
        self._elect(leader)
        kept = max(len(self.log) - lost_batches, 0)
        self.torn_off += [stored for stored in self.log[kept:] if stored.end_offset <= self.committed_end]
        del self.log[kept:]
        self.committed_end = min(self.committed_end, self.end_offset)

    def forget_producer(self, producer_id: int) -> None:
        self._forgotten_below[producer_id] = self.end_offset

    def restart_cleanly(self) -> None:
        """As Kafka does: of each producer it remembers the last batch only, as its snapshot does."""
        self._snapshot_end = self.end_offset

    def _elect(self, leader: int) -> None:
        self.leader = leader
        self.leader_epoch += 1

    def _judge(self, batch: Batch, is_strict: bool) -> Verdict:
        appended = Appended(StoredBatch(self.end_offset, batch))
        remembered = self._remembered(batch.producer_id)
        if not remembered:  # since KIP-360 an unknown producer may begin anywhere, unless its transactions are of v2
            return Refused(OUT_OF_ORDER_SEQUENCE_NUMBER) if is_strict and batch.sequence else appended
        last = remembered[-1].batch
        if batch.epoch < last.epoch:
            return Refused(INVALID_PRODUCER_EPOCH)
        is_new_epoch = batch.epoch > last.epoch
        if batch.sequence == (0 if is_new_epoch else (last.sequence + len(last.records)) % SEQUENCE_SPAN):
            return appended
        if is_new_epoch:
            return Refused(OUT_OF_ORDER_SEQUENCE_NUMBER)
        for stored in remembered:
            if stored.batch.sequence == batch.sequence and len(stored.batch.records) == len(batch.records):
                return Repeated(stored)
        return Refused(OUT_OF_ORDER_SEQUENCE_NUMBER)

    def _remembered(self, producer_id: int) -> list[StoredBatch]:
        """The producer's last batches of its newest epoch, oldest first."""
        found: list[StoredBatch] = []
        if producer_id == NO_PRODUCER:
            return found
        forgotten_below = self._forgotten_below.get(producer_id, 0)
        for stored in reversed(self.log):
            if stored.base_offset < forgotten_below or sum(bool(b.batch.records) for b in found) == REMEMBERED_BATCHES:
                break
            if stored.batch.producer_id != producer_id:
                continue
            if found and (stored.batch.epoch != found[-1].batch.epoch or stored.base_offset < self._snapshot_end):
                break
            found.append(stored)
        return found[::-1]
