"""EndTxn: how a transaction ends, and when a request to end one is only the same request again.

By protocol 1 a producer keeps its epoch. An EndTxn that comes late can then end a later transaction of the same
producer, and nothing here can tell: that hazard is why protocol 2 exists. By protocol 2 PREPARE raises the epoch. Who
names the epoch before it repeats a request; who names the present one means the next transaction:

| state           | abort: repeat | abort: present | commit: repeat | commit: present |
|-----------------|---------------|----------------|----------------|-----------------|
| Empty           | fenced        | prepared       | fenced         | 48              |
| Ongoing         | fenced        | prepared       | fenced         | prepared        |
| PrepareAbort    | 51            | 51             | 48             | 51              |
| PrepareCommit   | 48            | 51             | 51             | 51              |
| CompleteAbort   | done          | prepared       | 48             | 48              |
| CompleteCommit  | 48            | prepared       | done           | 48              |

Unlike Kafka, which fences it, the end of the next transaction waits (51) for the end of the last.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.coordinator.transactions.initialising import NewProducerId, raised
from oncelog.coordinator.transactions.joining import known
from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, PROTOCOL_2, Identity, Transaction
from oncelog.errors import ConcurrentTransactions, InvalidTxnState, ProducerFenced
from oncelog.types import NO_PRODUCER_ID


class Prepare(NamedTuple):
    """The outcome is decided: once this is durable it is certain."""

    transaction: Transaction


class Repeat(NamedTuple):
    """It has happened already."""

    identity: Identity


def end_by_protocol_1(
    transaction: Transaction | None, claimed: Identity, is_commit: bool, now_ms: int
) -> Prepare | Repeat:
    transaction = known(transaction, claimed)
    if claimed.epoch != transaction.identity.epoch:
        raise ProducerFenced(f"{claimed} was fenced; the epoch is {transaction.identity.epoch}")
    if transaction.state is State.ONGOING:
        return Prepare(transaction.prepared(_outcome(is_commit), now_ms))
    return _again(transaction, is_commit)


def end_by_protocol_2(
    transaction: Transaction | None, claimed: Identity, is_commit: bool, new_producer_id: NewProducerId, now_ms: int
) -> Prepare | Repeat:
    if transaction is not None and _is_repeat(transaction, claimed):
        return _again(transaction, is_commit)
    transaction = known(transaction, claimed)
    if claimed.epoch != transaction.identity.epoch:
        raise ProducerFenced(f"{claimed} was fenced; the epoch is {transaction.identity.epoch}")
    if transaction.is_prepared:
        raise ConcurrentTransactions("the last transaction is about to end; ask again")
    if is_commit and transaction.state is not State.ONGOING:
        raise InvalidTxnState(f"nothing to commit: the transaction is {transaction.state.label}")
    return Prepare(raised(transaction, _outcome(is_commit), new_producer_id, now_ms))


def _outcome(is_commit: bool) -> State:
    return State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT


def _is_repeat(transaction: Transaction, claimed: Identity) -> bool:
    """The epoch is the one that the end of this transaction has raised."""
    if transaction.protocol < PROTOCOL_2 or transaction.state in (State.EMPTY, State.ONGOING):
        return False
    if transaction.previous_producer_id not in (transaction.producer_id, NO_PRODUCER_ID):
        return claimed == (transaction.previous_producer_id, LAST_CLIENT_EPOCH)
    return claimed == (transaction.producer_id, transaction.epoch - 1)


def _again(transaction: Transaction, is_commit: bool) -> Repeat:
    if transaction.state is State.EMPTY:
        raise InvalidTxnState("there is no transaction to end")
    if transaction.is_commit != is_commit:
        raise InvalidTxnState(f"the transaction is {transaction.state.label} already")
    if transaction.is_prepared:
        raise ConcurrentTransactions("the transaction is about to end; ask again")
    return Repeat(transaction.identity)
