"""The one transaction of an atomic batch: begun by the planner, written into by all tasks, marked by the committer."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.client.transaction.prepared import PreparedTransaction, SharedTransaction
from oncelog.spark.sink.atomic import merge
from oncelog.spark.sink.attempts import Prepared, TaskResult
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.identity import WHOLE_BATCH, slot_id
from oncelog.spark.sink.journal_topic import marker_partition
from oncelog.spark.sink.settings import SinkSettings
from oncelog.spark.sink.slot_writer import SlotWriter
from oncelog.types import TopicPartition


def begin_whole(settings: SinkSettings, timeout_ms: int) -> SharedTransaction:
    """Fences who wrote into it before."""
    name = slot_id(settings.name, WHOLE_BATCH)
    with Brokers(settings.client).producer(transactional_id=name, transaction_timeout_ms=timeout_ms) as producer:
        producer.init_transactions()
        producer.begin()
        return producer.share()


def as_whole(settings: SinkSettings, timeout_ms: int, results: Sequence[TaskResult]) -> Sequence[TaskResult]:
    """The results of the tasks as that of one, with its marker. Raises if the transaction holds anything else."""
    shares = [one.outcome for one in results if isinstance(one.outcome, Prepared)]
    if not shares:
        return results
    brokers, transaction = Brokers(settings.client), shares[0].transaction
    shared = SharedTransaction(*transaction, brokers.uses_protocol_2())
    name = transaction.transactional_id
    with SlotWriter(brokers, settings.name, name, WHOLE_BATCH, timeout_ms, shared) as writer:
        future = writer.mark()
        writer.prepare()
        marker = shares[0].marker._replace(
            partition=marker_partition(settings.name, WHOLE_BATCH), offset=future.result().offset
        )
    return merge(results, marker, _stored(brokers, transaction, settings.name))


def _stored(brokers: Brokers, transaction: PreparedTransaction, prefix: str) -> dict[TopicPartition, int]:
    """How many records each partition of the transaction has, as the partitions themselves count: an attempt that
    failed may have left some."""
    name = transaction.transactional_id
    partitions = set(brokers.admin.describe_transactions([name])[name].partitions)
    partitions.discard(marker_partition(prefix, WHOLE_BATCH))
    return {
        partition: one.last_sequence + 1
        for partition, producers in brokers.admin.describe_producers(partitions).items()
        for one in producers
        if (one.producer_id, one.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
    }
