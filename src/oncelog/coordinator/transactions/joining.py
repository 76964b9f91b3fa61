"""AddPartitionsToTxn and AddOffsetsToTxn: what belongs to a transaction.

Clients of protocol 1 add partitions before they write; by protocol 2 the leader of a partition adds it when the first
batch comes. For the former a leader only verifies, with `missing`.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import Identity, Transaction
from oncelog.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced
from oncelog.types import TopicPartition


def join(
    transaction: Transaction | None,
    claimed: Identity,
    partitions: Collection[TopicPartition],
    protocol: int,
    now_ms: int,
) -> Transaction | None:
    """The transaction with these partitions, which may be none; None if it has them already."""
    transaction = _owned(transaction, claimed)
    is_new = transaction.state is not State.ONGOING or not set(partitions) <= set(transaction.partitions)
    return transaction.joined(partitions, protocol, now_ms) if is_new else None


def missing(
    transaction: Transaction | None, claimed: Identity, partitions: Collection[TopicPartition]
) -> set[TopicPartition]:
    """Those into which the producer may not write, as they are not in its transaction."""
    return set(partitions) - set(_owned(transaction, claimed).partitions)


def _owned(transaction: Transaction | None, claimed: Identity) -> Transaction:
    owner = known(transaction, claimed)
    if claimed.epoch != owner.identity.epoch:
        raise ProducerFenced(f"{claimed} was fenced; the epoch is {owner.identity.epoch}")
    if owner.is_prepared:
        raise ConcurrentTransactions("the last transaction is about to end; ask again")
    return owner


def known(transaction: Transaction | None, claimed: Identity) -> Transaction:
    """The transaction of this producer id."""
    if transaction is None:
        raise InvalidProducerIdMapping("the transactional id is not known, or has expired")
    if claimed.producer_id != transaction.identity.producer_id:
        raise InvalidProducerIdMapping(
            f"the transactional id belongs to producer {transaction.identity.producer_id}, not {claimed.producer_id}"
        )
    return transaction
