"""oncelog: exactly-once messages for Python, over a log and a broker that speak Apache Kafka's protocol.

What is public is exported here and loaded on first use, so that `import oncelog` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.admin import Admin as Admin
    from oncelog.admin import Ended as Ended
    from oncelog.admin import EndedOtherwise as EndedOtherwise
    from oncelog.admin import FencedProducer as FencedProducer
    from oncelog.admin import HangingTransaction as HangingTransaction
    from oncelog.admin import NothingToEnd as NothingToEnd
    from oncelog.admin import OutcomeForgotten as OutcomeForgotten
    from oncelog.admin import ProducerState as ProducerState
    from oncelog.admin import TransactionDescription as TransactionDescription
    from oncelog.admin import TransactionListing as TransactionListing
    from oncelog.admin import TransactionState as TransactionState
    from oncelog.broker.process import Broker as Broker
    from oncelog.broker.process import BrokerFailed as BrokerFailed
    from oncelog.client.accumulator import RecordTooLarge as RecordTooLarge
    from oncelog.client.consumer_errors import CommitFailed as CommitFailed
    from oncelog.client.consumer_errors import ConsumerClosed as ConsumerClosed
    from oncelog.client.consumer_errors import ConsumerInUse as ConsumerInUse
    from oncelog.client.consumer_errors import ConsumerTimedOut as ConsumerTimedOut
    from oncelog.client.consumer_errors import InvalidOffset as InvalidOffset
    from oncelog.client.consumer_errors import LogTruncated as LogTruncated
    from oncelog.client.consumer_errors import MaxPollExceeded as MaxPollExceeded
    from oncelog.client.consumer_errors import NoOffsetForPartition as NoOffsetForPartition
    from oncelog.client.consumer_errors import NotAssigned as NotAssigned
    from oncelog.client.consumer_errors import PositionOutOfRange as PositionOutOfRange
    from oncelog.client.consumer_errors import RecordDeserializationError as RecordDeserializationError
    from oncelog.client.consumer_errors import SubscriptionConflict as SubscriptionConflict
    from oncelog.client.consumer_errors import WokenUp as WokenUp
    from oncelog.client.consumer_records import GroupMetadata as GroupMetadata
    from oncelog.client.consumer_records import OffsetAndMetadata as OffsetAndMetadata
    from oncelog.client.consumer_records import OffsetAndTimestamp as OffsetAndTimestamp
    from oncelog.client.delivery import NotDeliveredYet as NotDeliveredYet
    from oncelog.client.delivery import RecordFuture as RecordFuture
    from oncelog.client.partitioner import PartitionerError as PartitionerError
    from oncelog.client.producer_errors import BufferExhausted as BufferExhausted
    from oncelog.client.producer_errors import DeliveryFailed as DeliveryFailed
    from oncelog.client.producer_errors import DeliveryTimedOut as DeliveryTimedOut
    from oncelog.client.producer_errors import ProducerClosed as ProducerClosed
    from oncelog.client.producer_errors import RefusedWithOthers as RefusedWithOthers
    from oncelog.client.producer_errors import TopicUnavailable as TopicUnavailable
    from oncelog.client.records import ProducerRecord as ProducerRecord
    from oncelog.client.records import RecordMetadata as RecordMetadata
    from oncelog.client.spool.errors import SpoolError as SpoolError
    from oncelog.client.spool.errors import SpoolFateUnknown as SpoolFateUnknown
    from oncelog.client.spool.errors import SpoolFull as SpoolFull
    from oncelog.client.spool.errors import SpoolInUse as SpoolInUse
    from oncelog.client.spool.errors import SpoolWriteFailed as SpoolWriteFailed
    from oncelog.client.table_result import PartitionOffsets as PartitionOffsets
    from oncelog.client.table_result import RowsFailed as RowsFailed
    from oncelog.client.table_result import TableFailed as TableFailed
    from oncelog.client.table_result import TableFuture as TableFuture
    from oncelog.client.table_result import TableMetadata as TableMetadata
    from oncelog.client.transaction.prepared import PreparedTransaction as PreparedTransaction
    from oncelog.client.transaction_errors import AbortNeeded as AbortNeeded
    from oncelog.client.transaction_errors import OutcomeUnknown as OutcomeUnknown
    from oncelog.client.transaction_errors import TransactionalProducerFenced as TransactionalProducerFenced
    from oncelog.client.transaction_errors import TransactionError as TransactionError
    from oncelog.client.transaction_errors import TransactionFailed as TransactionFailed
    from oncelog.client.transaction_errors import TransactionMisuse as TransactionMisuse
    from oncelog.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from oncelog.consumer.consumer import Consumer as Consumer
    from oncelog.consumer.deserializers import Deserializer as Deserializer
    from oncelog.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from oncelog.errors import KafkaError as KafkaError
    from oncelog.errors import OncelogError as OncelogError
    from oncelog.processing.report import BatchReport as BatchReport
    from oncelog.processing.report import ProcessReport as ProcessReport
    from oncelog.processing.tasks import process_async as process_async
    from oncelog.processing.threads import process as process
    from oncelog.producer.async_producer import AsyncProducer as AsyncProducer
    from oncelog.producer.interceptors import Interceptor as Interceptor
    from oncelog.producer.metrics import prometheus_collector as prometheus_collector
    from oncelog.producer.producer import Producer as Producer
    from oncelog.producer.serializers import SerializationError as SerializationError
    from oncelog.producer.serializers import Serializer as Serializer
    from oncelog.records.kernel import ConsumerRecord as ConsumerRecord
    from oncelog.records.model import TableError as TableError
    from oncelog.types import TopicPartition as TopicPartition

__version__ = "0.1.0"

_HOMES = {
    "AbortNeeded": "oncelog.client.transaction_errors",
    "Admin": "oncelog.admin",
    "AsyncConsumer": "oncelog.consumer.async_consumer",
    "AsyncProducer": "oncelog.producer.async_producer",
    "BatchReport": "oncelog.processing.report",
    "Broker": "oncelog.broker.process",
    "BrokerFailed": "oncelog.broker.process",
    "BufferExhausted": "oncelog.client.producer_errors",
    "CommitFailed": "oncelog.client.consumer_errors",
    "Consumer": "oncelog.consumer.consumer",
    "ConsumerClosed": "oncelog.client.consumer_errors",
    "ConsumerInUse": "oncelog.client.consumer_errors",
    "ConsumerInterceptor": "oncelog.consumer.interceptors",
    "ConsumerRecord": "oncelog.records.kernel",
    "ConsumerTimedOut": "oncelog.client.consumer_errors",
    "DeliveryFailed": "oncelog.client.producer_errors",
    "DeliveryTimedOut": "oncelog.client.producer_errors",
    "Deserializer": "oncelog.consumer.deserializers",
    "Ended": "oncelog.admin",
    "EndedOtherwise": "oncelog.admin",
    "FencedProducer": "oncelog.admin",
    "GroupMetadata": "oncelog.client.consumer_records",
    "HangingTransaction": "oncelog.admin",
    "Interceptor": "oncelog.producer.interceptors",
    "InvalidOffset": "oncelog.client.consumer_errors",
    "KafkaError": "oncelog.errors",
    "LogTruncated": "oncelog.client.consumer_errors",
    "MaxPollExceeded": "oncelog.client.consumer_errors",
    "NoOffsetForPartition": "oncelog.client.consumer_errors",
    "NotAssigned": "oncelog.client.consumer_errors",
    "NotDeliveredYet": "oncelog.client.delivery",
    "NothingToEnd": "oncelog.admin",
    "OffsetAndMetadata": "oncelog.client.consumer_records",
    "OffsetAndTimestamp": "oncelog.client.consumer_records",
    "OncelogError": "oncelog.errors",
    "OutcomeForgotten": "oncelog.admin",
    "OutcomeUnknown": "oncelog.client.transaction_errors",
    "PartitionOffsets": "oncelog.client.table_result",
    "PartitionerError": "oncelog.client.partitioner",
    "PositionOutOfRange": "oncelog.client.consumer_errors",
    "PreparedTransaction": "oncelog.client.transaction.prepared",
    "ProcessReport": "oncelog.processing.report",
    "Producer": "oncelog.producer.producer",
    "ProducerClosed": "oncelog.client.producer_errors",
    "ProducerRecord": "oncelog.client.records",
    "ProducerState": "oncelog.admin",
    "RecordDeserializationError": "oncelog.client.consumer_errors",
    "RecordFuture": "oncelog.client.delivery",
    "RecordMetadata": "oncelog.client.records",
    "RecordTooLarge": "oncelog.client.accumulator",
    "RefusedWithOthers": "oncelog.client.producer_errors",
    "RowsFailed": "oncelog.client.table_result",
    "SerializationError": "oncelog.producer.serializers",
    "Serializer": "oncelog.producer.serializers",
    "SpoolError": "oncelog.client.spool.errors",
    "SpoolFateUnknown": "oncelog.client.spool.errors",
    "SpoolFull": "oncelog.client.spool.errors",
    "SpoolInUse": "oncelog.client.spool.errors",
    "SpoolWriteFailed": "oncelog.client.spool.errors",
    "SubscriptionConflict": "oncelog.client.consumer_errors",
    "TableError": "oncelog.records.model",
    "TableFailed": "oncelog.client.table_result",
    "TableFuture": "oncelog.client.table_result",
    "TableMetadata": "oncelog.client.table_result",
    "TopicPartition": "oncelog.types",
    "TopicUnavailable": "oncelog.client.producer_errors",
    "TransactionDescription": "oncelog.admin",
    "TransactionError": "oncelog.client.transaction_errors",
    "TransactionFailed": "oncelog.client.transaction_errors",
    "TransactionListing": "oncelog.admin",
    "TransactionMisuse": "oncelog.client.transaction_errors",
    "TransactionState": "oncelog.admin",
    "TransactionalProducerFenced": "oncelog.client.transaction_errors",
    "WokenUp": "oncelog.client.consumer_errors",
    "process": "oncelog.processing.threads",
    "process_async": "oncelog.processing.tasks",
    "prometheus_collector": "oncelog.producer.metrics",
}

__all__ = [
    "AbortNeeded",
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchReport",
    "Broker",
    "BrokerFailed",
    "BufferExhausted",
    "CommitFailed",
    "Consumer",
    "ConsumerClosed",
    "ConsumerInUse",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerTimedOut",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Deserializer",
    "Ended",
    "EndedOtherwise",
    "FencedProducer",
    "GroupMetadata",
    "HangingTransaction",
    "Interceptor",
    "InvalidOffset",
    "KafkaError",
    "LogTruncated",
    "MaxPollExceeded",
    "NoOffsetForPartition",
    "NotAssigned",
    "NotDeliveredYet",
    "NothingToEnd",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OncelogError",
    "OutcomeForgotten",
    "OutcomeUnknown",
    "PartitionOffsets",
    "PartitionerError",
    "PositionOutOfRange",
    "PreparedTransaction",
    "ProcessReport",
    "Producer",
    "ProducerClosed",
    "ProducerRecord",
    "ProducerState",
    "RecordDeserializationError",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "RefusedWithOthers",
    "RowsFailed",
    "SerializationError",
    "Serializer",
    "SpoolError",
    "SpoolFateUnknown",
    "SpoolFull",
    "SpoolInUse",
    "SpoolWriteFailed",
    "SubscriptionConflict",
    "TableError",
    "TableFailed",
    "TableFuture",
    "TableMetadata",
    "TopicPartition",
    "TopicUnavailable",
    "TransactionDescription",
    "TransactionError",
    "TransactionFailed",
    "TransactionListing",
    "TransactionMisuse",
    "TransactionState",
    "TransactionalProducerFenced",
    "WokenUp",
    "__version__",
    "process",
    "process_async",
    "prometheus_collector",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
