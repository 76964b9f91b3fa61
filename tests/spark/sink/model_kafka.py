"""Transactions as Apache Kafka has them, in memory: ids, epochs, timeouts, markers; protocol 1 or 2."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from oncelog.admin.values import TransactionDescription, TransactionState
from oncelog.errors import NONE, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced
from oncelog.types import TopicPartition

MAX_EPOCH = 9
"""So small that the ids of tests run out of epochs."""


class Control(Enum):
    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class Stored:
    producer_id: int
    epoch: int
    value: object | Control


@dataclass
class Transactional:
    producer_id: int
    epoch: int
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    ended: tuple[int, int] | None = None
    """Protocol 2: the producer whose transaction was the last to end."""


class Fenced(Exception):
    pass


class ModelKafka:
    def __init__(self, protocol: int) -> None:
        self.protocol = protocol
        self.log: dict[TopicPartition, list[Stored]] = {}
        self.log_start: dict[TopicPartition, int] = {}
        self.ids: dict[str, Transactional] = {}
        self._next_producer_id = 1000

    def init(self, name: str) -> tuple[int, int]:
        one = self.ids.get(name)
        if one is None:
            one = self.ids[name] = Transactional(self._new_producer_id(), 0)
        else:
            if one.state is TransactionState.ONGOING:
                self._end(one, Control.ABORT)
            self._raise_epoch(one)
        one.state, one.ended = TransactionState.EMPTY, None
        return one.producer_id, one.epoch

    def produce(self, name: str, producer_id: int, epoch: int, partition: TopicPartition, value: object) -> int:
        one = self.ids.get(name)
        if one is None or (one.producer_id, one.epoch) != (producer_id, epoch):
            raise Fenced(name)
        one.state = TransactionState.ONGOING
        one.partitions.add(partition)
        log = self.log.setdefault(partition, [])
        log.append(Stored(producer_id, epoch, value))
        return len(log) - 1

    def end_txn(self, name: str, producer_id: int, epoch: int, *, commit: bool) -> int:
        one = self.ids.get(name)
        if one is None:
            return InvalidProducerIdMapping.code
        wanted = Control.COMMIT if commit else Control.ABORT
        asked = (producer_id, epoch)
        if asked == (one.producer_id, one.epoch) and one.state is TransactionState.ONGOING:
            self._end(one, wanted)
            if self.protocol == 2:
                one.ended = asked
                self._raise_epoch(one)
            return NONE
        if asked == (one.ended if self.protocol == 2 else (one.producer_id, one.epoch)):
            return NONE if one.state is _complete(wanted) else InvalidTxnState.code
        return ProducerFenced.code if producer_id == one.producer_id else InvalidProducerIdMapping.code

    def time_out(self, name: str) -> None:
        one = self.ids[name]
        if one.state is TransactionState.ONGOING:
            asked = (one.producer_id, one.epoch)
            self._end(one, Control.ABORT)
            self._raise_epoch(one)
            one.ended = asked if self.protocol == 2 else None

    def forget(self, name: str) -> None:
        if self.ids[name].state is not TransactionState.ONGOING:
            del self.ids[name]

    def describe(self, name: str) -> TransactionDescription | None:
        one = self.ids.get(name)
        if one is None:
            return None
        return TransactionDescription(
            transactional_id=name,
            coordinator_id=0,
            state=one.state,
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            timeout_ms=0,
            start_ms=None,
            partitions=tuple(sorted(one.partitions)),
        )

    def open_ids(self) -> list[str]:
        return [name for name, one in self.ids.items() if one.state is TransactionState.ONGOING]

    def outcomes(self, partition: TopicPartition) -> list[Control | None]:
        """Of the transaction that wrote at each offset. None: it is open."""
        latest: dict[int, Control] = {}
        found: list[Control | None] = []
        for stored in reversed(self.log.get(partition, ())):
            if isinstance(stored.value, Control):
                latest[stored.producer_id] = stored.value
            found.append(latest.get(stored.producer_id))
        return found[::-1]

    def last_stable_offset(self, partition: TopicPartition) -> int:
        outcomes = self.outcomes(partition)
        return outcomes.index(None) if None in outcomes else len(outcomes)

    def visible(self, partition: TopicPartition) -> list[object]:
        """To readers of committed records who began before retention removed anything."""
        end = self.last_stable_offset(partition)
        pairs = zip(self.log.get(partition, [])[:end], self.outcomes(partition), strict=False)
        return [one.value for one, how in pairs if how is Control.COMMIT and not isinstance(one.value, Control)]

    def _end(self, one: Transactional, how: Control) -> None:
        for partition in sorted(one.partitions):
            self.log[partition].append(Stored(one.producer_id, one.epoch, how))
        one.partitions.clear()
        one.state = _complete(how)

    def _raise_epoch(self, one: Transactional) -> None:
        one.epoch += 1
        if one.epoch > MAX_EPOCH:
            one.producer_id, one.epoch = self._new_producer_id(), 0

    def _new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id


def _complete(how: Control) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if how is Control.COMMIT else TransactionState.COMPLETE_ABORT
