"""InitProducerId with a transactional id: under which identity a producer may write from now on.

A producer that names nothing takes the place of whoever had the id: the epoch rises, and an open transaction is aborted
first. One that names what it had (KIP-360) goes on after an error; only the present owner may, or the same request
coming again because its answer was lost.

Unlike Kafka, a producer that names an epoch which is over cannot abort the open transaction of its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import Identity, Transaction
from oncelog.errors import ConcurrentTransactions, ProducerFenced
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NewProducerId: TypeAlias = Callable[[], int]
"""An id that nobody ever had, reserved durably; raises KafkaError where there is none at present."""


class Ready(NamedTuple):
    """The producer may write under the identity of this transaction."""

    transaction: Transaction


class AbortFirst(NamedTuple):
    """The open transaction ends; the producer asks again when it has."""

    transaction: Transaction


def initialise(
    transaction: Transaction | None,
    expected: Identity | None,
    timeout_ms: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> Ready | AbortFirst:
    is_continued = expected is not None
    if transaction is None:
        transaction = Transaction(new_producer_id(), NO_PRODUCER_EPOCH, timeout_ms)
        return Ready(transaction.renewed(timeout_ms, is_continued=is_continued, now_ms=now_ms))
    _check_producer_id(transaction, expected)
    if transaction.is_prepared:
        raise ConcurrentTransactions("the last transaction is about to end; ask again")
    is_owner = expected is None or expected.epoch == transaction.epoch
    if transaction.state is State.ONGOING:
        if not is_owner:
            raise ProducerFenced(f"epoch {transaction.epoch} has an open transaction; {expected} was fenced")
        return AbortFirst(abort_for_producer(transaction, new_producer_id, now_ms))
    if is_owner:
        return Ready(_successor(transaction, timeout_ms, new_producer_id, is_continued=is_continued, now_ms=now_ms))
    if expected is not None and expected.epoch == transaction.last_epoch:
        return Ready(transaction.kept(timeout_ms, now_ms))
    raise ProducerFenced(f"another producer took the place of {expected}; the epoch is {transaction.epoch}")


def abort_for_producer(transaction: Transaction, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
    """The abort of an open transaction whose producer did not ask for it: it took too long, or has a successor. Always
    by protocol 2: with the next epoch, nothing that the producer still sends can count."""
    return raised(transaction.fenced(), State.PREPARE_ABORT, new_producer_id, now_ms)


def raised(transaction: Transaction, outcome: State, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
    is_exhausted = Identity(transaction.producer_id, transaction.epoch).is_exhausted
    next_producer_id = new_producer_id() if is_exhausted else NO_PRODUCER_ID
    return transaction.prepared_and_raised(outcome, next_producer_id, now_ms)


def _check_producer_id(transaction: Transaction, expected: Identity | None) -> None:
    if expected is None or expected.producer_id in (transaction.producer_id, transaction.identity.producer_id):
        return
    if expected.producer_id == transaction.previous_producer_id and expected.is_exhausted:
        return
    raise ProducerFenced(f"the transactional id belongs to producer {transaction.producer_id}, not to {expected}")


def _successor(
    transaction: Transaction, timeout_ms: int, new_producer_id: NewProducerId, *, is_continued: bool, now_ms: int
) -> Transaction:
    if transaction.identity.is_exhausted:
        return transaction.rotated(new_producer_id(), timeout_ms, is_continued=is_continued, now_ms=now_ms)
    return transaction.renewed(timeout_ms, is_continued=is_continued, now_ms=now_ms)
