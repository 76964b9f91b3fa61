"""What the coordinator knows of one transactional id: a value, and the values that may follow it.

Owns which fields change at which step. Every step goes through the table of transitions and returns a new value; who
may take it, and what is answered, is decided elsewhere (`initialising`, `joining`, `ending`).

Protocol 1 keeps the epoch of a producer from one transaction to the next; protocol 2 (KIP-890) raises it each time, so
that whatever comes late carries an epoch that is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from oncelog.coordinator.transactions.state import AT_REST, COMPLETED, PREPARED, State, check_transition
from oncelog.types import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

PROTOCOL_1: Final = 0
"""Protocols are written as levels of `transaction.version`; Kafka writes 0 for all that came before level 2."""

PROTOCOL_2: Final = 2

LAST_CLIENT_EPOCH: Final = MAX_PRODUCER_EPOCH - 1
"""No client is given a higher one: the highest is kept for fencing whoever has this one."""


_RAISED: Final = PREPARED | COMPLETED


class Identity(NamedTuple):
    """Under which a producer writes."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_CLIENT_EPOCH


class Transaction(NamedTuple):
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """Those that have no marker yet as far as the log says; none of them twice."""
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    protocol: int = PROTOCOL_1
    """With which the last step was taken."""
    previous_producer_id: int = NO_PRODUCER_ID
    """Before the last step: another one only if that step has given the transactional id a new producer id."""
    next_producer_id: int = NO_PRODUCER_ID
    """The epochs of the present one are used up: this one is the producer's as soon as the transaction is complete."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch of the same producer before this one, by which a repeated request is known. Kafka's records have no
    place for it. Where it cannot be derived, a repeat that comes after a crash is fenced."""

    @property
    def identity(self) -> Identity:
        """What the producer was told, or will be: from PREPARE on it may use what follows the transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, 0)
        return Identity(self.producer_id, self.epoch)

    @property
    def is_prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def is_at_rest(self) -> bool:
        return self.state in AT_REST

    @property
    def is_commit(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def deadline_ms(self) -> int:
        """Until when an open transaction may stay open."""
        return self.start_ms + self.timeout_ms

    # Steps

    def renewed(self, timeout_ms: int, *, is_continued: bool, now_ms: int) -> Transaction:
        """The next epoch, for a producer that goes on (it named what it had) or for one that takes its place."""
        last_epoch = self.epoch if is_continued else NO_PRODUCER_EPOCH
        return self.kept(timeout_ms, now_ms)._replace(epoch=self.epoch + 1, last_epoch=last_epoch)

    def kept(self, timeout_ms: int, now_ms: int) -> Transaction:
        """The same identity, told again."""
        return self._step(State.EMPTY, now_ms, timeout_ms=timeout_ms, partitions=(), start_ms=NO_TIMESTAMP)

    def rotated(self, producer_id: int, timeout_ms: int, *, is_continued: bool, now_ms: int) -> Transaction:
        """Another producer id, as the epochs of the present one are used up."""
        last_epoch = self.epoch if is_continued else NO_PRODUCER_EPOCH
        return self.kept(timeout_ms, now_ms)._replace(producer_id=producer_id, epoch=0, last_epoch=last_epoch)

    def joined(self, partitions: Iterable[TopicPartition], protocol: int, now_ms: int) -> Transaction:
        """With these partitions. The first ones begin the transaction."""
        everything = tuple(dict.fromkeys((*self.partitions, *partitions)))
        start_ms = now_ms if self.is_at_rest else self.start_ms
        return self._step(State.ONGOING, now_ms, partitions=everything, start_ms=start_ms, protocol=protocol)

    def prepared(self, outcome: State, now_ms: int) -> Transaction:
        """By protocol 1: the outcome is certain once this is durable."""
        return self._step(outcome, now_ms, protocol=PROTOCOL_1)

    def prepared_and_raised(self, outcome: State, next_producer_id: int, now_ms: int) -> Transaction:
        """By protocol 2: as above, and the epoch of the transaction is over."""
        return self._step(
            outcome,
            now_ms,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.is_at_rest else self.start_ms,
            protocol=PROTOCOL_2,
        )

    def fenced(self) -> Transaction:
        """Its producer has lost it. Never recorded: an abort follows at once, which raises the epoch."""
        check_transition(self.state, State.PREPARE_EPOCH_FENCE)
        return self._replace(state=State.PREPARE_EPOCH_FENCE)

    def completed(self, now_ms: int) -> Transaction:
        """Every partition has its marker."""
        after = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        done = self._step(after, now_ms, partitions=())
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return done._replace(producer_id=self.next_producer_id, epoch=0, next_producer_id=NO_PRODUCER_ID)

    def _step(self, after: State, now_ms: int, **changes: Any) -> Transaction:
        check_transition(self.state, after)
        following = self._replace(state=after, last_update_ms=now_ms, previous_producer_id=self.producer_id)
        return following._replace(**changes)

    # The log

    def as_read(self) -> Transaction:
        """After a start: what the record does not say is derived, where that can be done."""
        return self._replace(last_epoch=epoch_before(self.state, self.epoch, self.protocol))

    def hard_state(self) -> Transaction:
        """What the log says, comparable: partitions are a set there, grouped by topic."""
        return self._replace(last_epoch=NO_PRODUCER_EPOCH, partitions=tuple(sorted(self.partitions)))


def epoch_before(state: State, epoch: int, protocol: int) -> int:
    """The epoch that the end of a transaction by protocol 2 has raised to this one."""
    if protocol < PROTOCOL_2 or state not in _RAISED:
        return NO_PRODUCER_EPOCH
    return epoch - 1 if epoch > 0 else LAST_CLIENT_EPOCH
