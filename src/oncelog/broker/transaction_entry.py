"""How a transaction enters a partition: before its first batch there, the leader asks the transaction's coordinator.

Owns what is asked for which version of a request, and in whose words a client of that version hears the answer. As long
as the transaction is open in the partition's log, nobody needs to be asked.

Kafka's names: AddPartitionsToTxnManager, TransactionSupportedOperation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from oncelog.broker.config.transaction_keys import PARTITION_VERIFICATION
from oncelog.errors import InvalidProducerEpoch, InvalidTxnState, KafkaError, ProducerFenced, TransactionAbortable
from oncelog.log.partition_log import PartitionLog
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

FIRST_PRODUCE_WITH_ABORTABLE, FIRST_PRODUCE_THAT_ADDS = 11, 12
FIRST_COMMIT_WITH_ABORTABLE, FIRST_COMMIT_THAT_ADDS = 4, 5

Refused = Mapping[TopicPartition, KafkaError]


class Entry(Enum):
    """What a client of a version expects of the leader."""

    VERIFIED = 1
    """It has added the partition itself; if not, its transaction is in a wrong state."""
    VERIFIED_ABORTABLE = 2
    """The same, and it knows TRANSACTION_ABORTABLE."""
    ADDED = 3
    """The leader adds the partition (KIP-890)."""


def entry_of_produce(version: int) -> Entry:
    if version >= FIRST_PRODUCE_THAT_ADDS:
        return Entry.ADDED
    return Entry.VERIFIED_ABORTABLE if version >= FIRST_PRODUCE_WITH_ABORTABLE else Entry.VERIFIED


def entry_of_offset_commit(version: int) -> Entry:
    if version >= FIRST_COMMIT_THAT_ADDS:
        return Entry.ADDED
    return Entry.VERIFIED_ABORTABLE if version >= FIRST_COMMIT_WITH_ABORTABLE else Entry.VERIFIED


def has_entered(log: PartitionLog, producer_id: int, producer_epoch: int) -> bool:
    """Whether the producer's transaction is open here; or its epoch is over here, and the log itself refuses it."""
    known = log.producers.entry(producer_id)
    return known is not None and (known.has_open_transaction(producer_epoch) or producer_epoch < known.epoch)


def enter(
    broker: BrokerState,
    entry: Entry,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    done: Callable[[Refused], None],
) -> None:
    """`done` hears which partitions the transaction may not write into, and why: at once, unless the coordinator waits
    for its disk."""
    is_added = entry is Entry.ADDED
    if not is_added and not broker.config.values[PARTITION_VERIFICATION]:
        done({})
        return

    def answered(refused: Refused) -> None:
        done({partition: _as_told(error, entry) for partition, error in refused.items()} if refused else refused)

    broker.transactions.join(
        transactional_id,
        producer_id,
        producer_epoch,
        partitions,
        verify_only=not is_added,
        done=answered,
    )


def _as_told(error: KafkaError, entry: Entry) -> KafkaError:
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, TransactionAbortable) and entry is Entry.VERIFIED:
        return InvalidTxnState(error.message)
    return error
