"""oncelog: exactly-once messages for Python, over a log and a broker that speak Apache Kafka's protocol.

What is public is exported here and loaded on first use, so that `import oncelog` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog import audit as audit
    from oncelog import errors as errors
    from oncelog import faults as faults
    from oncelog import once as once
    from oncelog import spark as spark
    from oncelog.admin import Admin as Admin
    from oncelog.admin import Ended as Ended
    from oncelog.admin import EndedOtherwise as EndedOtherwise
    from oncelog.admin import FencedProducer as FencedProducer
    from oncelog.admin import HangingTransaction as HangingTransaction
    from oncelog.admin import NothingToEnd as NothingToEnd
    from oncelog.admin import OffsetSpec as OffsetSpec
    from oncelog.admin import OutcomeForgotten as OutcomeForgotten
    from oncelog.admin import ProducerState as ProducerState
    from oncelog.admin import ResourceType as ResourceType
    from oncelog.admin import TransactionDescription as TransactionDescription
    from oncelog.admin import TransactionListing as TransactionListing
    from oncelog.admin import TransactionState as TransactionState
    from oncelog.broker.process import Broker as Broker
    from oncelog.broker.process import BrokerFailed as BrokerFailed
    from oncelog.client.accumulator import RecordTooLarge as RecordTooLarge
    from oncelog.client.blocking import BrokersUnreachable as BrokersUnreachable
    from oncelog.client.blocking import ConnectionLost as ConnectionLost
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
    from oncelog.client.failure_run import TooManyFailures as TooManyFailures
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
    from oncelog.client.typed_settings import AdminSettings as AdminSettings
    from oncelog.client.typed_settings import ConsumerSettings as ConsumerSettings
    from oncelog.client.typed_settings import ProducerSettings as ProducerSettings
    from oncelog.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from oncelog.consumer.consumer import Consumer as Consumer
    from oncelog.consumer.deserializers import Deserializer as Deserializer
    from oncelog.consumer.interceptors import ConsumerInterceptor as ConsumerInterceptor
    from oncelog.errors import CorruptMessage as CorruptMessage
    from oncelog.errors import FencedInstanceId as FencedInstanceId
    from oncelog.errors import GroupAuthorizationFailed as GroupAuthorizationFailed
    from oncelog.errors import GroupIdNotFound as GroupIdNotFound
    from oncelog.errors import GroupSubscribedToTopic as GroupSubscribedToTopic
    from oncelog.errors import InvalidConfig as InvalidConfig
    from oncelog.errors import InvalidPartitions as InvalidPartitions
    from oncelog.errors import InvalidProducerEpoch as InvalidProducerEpoch
    from oncelog.errors import InvalidRecord as InvalidRecord
    from oncelog.errors import InvalidRegularExpression as InvalidRegularExpression
    from oncelog.errors import InvalidRequest as InvalidRequest
    from oncelog.errors import InvalidTopicException as InvalidTopicException
    from oncelog.errors import KafkaError as KafkaError
    from oncelog.errors import MessageTooLarge as MessageTooLarge
    from oncelog.errors import NonEmptyGroup as NonEmptyGroup
    from oncelog.errors import OffsetOutOfRange as OffsetOutOfRange
    from oncelog.errors import OncelogError as OncelogError
    from oncelog.errors import PolicyViolation as PolicyViolation
    from oncelog.errors import TopicAlreadyExists as TopicAlreadyExists
    from oncelog.errors import TopicAuthorizationFailed as TopicAuthorizationFailed
    from oncelog.errors import TransactionalIdNotFound as TransactionalIdNotFound
    from oncelog.errors import TransactionCoordinatorFenced as TransactionCoordinatorFenced
    from oncelog.errors import UnknownMemberId as UnknownMemberId
    from oncelog.errors import UnknownTopicOrPartition as UnknownTopicOrPartition
    from oncelog.errors import UnsupportedVersion as UnsupportedVersion
    from oncelog.once.errors import BadEffect as BadEffect
    from oncelog.once.errors import BadIdentity as BadIdentity
    from oncelog.once.errors import DatabaseUnavailable as DatabaseUnavailable
    from oncelog.once.errors import EffectEndedTransaction as EffectEndedTransaction
    from oncelog.once.errors import LeaseHeld as LeaseHeld
    from oncelog.once.errors import LeaseLost as LeaseLost
    from oncelog.once.errors import NotClaimed as NotClaimed
    from oncelog.once.errors import OnceError as OnceError
    from oncelog.once.errors import PartitionFenced as PartitionFenced
    from oncelog.once.errors import PartitionTakenTwice as PartitionTakenTwice
    from oncelog.once.errors import PoisonRecord as PoisonRecord
    from oncelog.once.errors import PositionBeyondEnd as PositionBeyondEnd
    from oncelog.once.errors import UnsupportedDatabase as UnsupportedDatabase
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
    from oncelog.spark.sink.errors import ForeignCheckpoint as ForeignCheckpoint
    from oncelog.spark.sink.errors import JournalFenced as JournalFenced
    from oncelog.spark.sink.errors import NearExpiry as NearExpiry
    from oncelog.spark.sink.errors import NotFinished as NotFinished
    from oncelog.spark.sink.errors import NotPlanned as NotPlanned
    from oncelog.spark.sink.errors import NotWhole as NotWhole
    from oncelog.spark.sink.errors import PrefixInUse as PrefixInUse
    from oncelog.spark.sink.errors import RecordsGone as RecordsGone
    from oncelog.spark.sink.errors import RolledBack as RolledBack
    from oncelog.spark.sink.errors import RowWithoutTopic as RowWithoutTopic
    from oncelog.spark.sink.errors import SinkError as SinkError
    from oncelog.spark.sink.errors import TooLate as TooLate
    from oncelog.spark.sink.errors import UnreadableJournal as UnreadableJournal
    from oncelog.spark.source.losses import OffsetsBeyondLog as OffsetsBeyondLog
    from oncelog.types import TopicPartition as TopicPartition

__version__ = "0.1.0"

_MODULES = frozenset({"audit", "errors", "faults", "once", "spark"})
"""Those that are public as they are: `oncelog.once.Runner`."""

_HOMES = {
    "AbortNeeded": "oncelog.client.transaction_errors",
    "Admin": "oncelog.admin",
    "AdminSettings": "oncelog.client.typed_settings",
    "AsyncConsumer": "oncelog.consumer.async_consumer",
    "AsyncProducer": "oncelog.producer.async_producer",
    "BadEffect": "oncelog.once.errors",
    "BadIdentity": "oncelog.once.errors",
    "BatchReport": "oncelog.processing.report",
    "Broker": "oncelog.broker.process",
    "BrokerFailed": "oncelog.broker.process",
    "BrokersUnreachable": "oncelog.client.blocking",
    "BufferExhausted": "oncelog.client.producer_errors",
    "CommitFailed": "oncelog.client.consumer_errors",
    "ConnectionLost": "oncelog.client.blocking",
    "Consumer": "oncelog.consumer.consumer",
    "ConsumerClosed": "oncelog.client.consumer_errors",
    "ConsumerInUse": "oncelog.client.consumer_errors",
    "ConsumerInterceptor": "oncelog.consumer.interceptors",
    "ConsumerRecord": "oncelog.records.kernel",
    "ConsumerSettings": "oncelog.client.typed_settings",
    "ConsumerTimedOut": "oncelog.client.consumer_errors",
    "CorruptMessage": "oncelog.errors",
    "DatabaseUnavailable": "oncelog.once.errors",
    "DeliveryFailed": "oncelog.client.producer_errors",
    "DeliveryTimedOut": "oncelog.client.producer_errors",
    "Deserializer": "oncelog.consumer.deserializers",
    "EffectEndedTransaction": "oncelog.once.errors",
    "Ended": "oncelog.admin",
    "EndedOtherwise": "oncelog.admin",
    "FencedInstanceId": "oncelog.errors",
    "FencedProducer": "oncelog.admin",
    "ForeignCheckpoint": "oncelog.spark.sink.errors",
    "GroupAuthorizationFailed": "oncelog.errors",
    "GroupIdNotFound": "oncelog.errors",
    "GroupMetadata": "oncelog.client.consumer_records",
    "GroupSubscribedToTopic": "oncelog.errors",
    "HangingTransaction": "oncelog.admin",
    "Interceptor": "oncelog.producer.interceptors",
    "InvalidConfig": "oncelog.errors",
    "InvalidOffset": "oncelog.client.consumer_errors",
    "InvalidPartitions": "oncelog.errors",
    "InvalidProducerEpoch": "oncelog.errors",
    "InvalidRecord": "oncelog.errors",
    "InvalidRegularExpression": "oncelog.errors",
    "InvalidRequest": "oncelog.errors",
    "InvalidTopicException": "oncelog.errors",
    "JournalFenced": "oncelog.spark.sink.errors",
    "KafkaError": "oncelog.errors",
    "LeaseHeld": "oncelog.once.errors",
    "LeaseLost": "oncelog.once.errors",
    "LogTruncated": "oncelog.client.consumer_errors",
    "MaxPollExceeded": "oncelog.client.consumer_errors",
    "MessageTooLarge": "oncelog.errors",
    "NearExpiry": "oncelog.spark.sink.errors",
    "NoOffsetForPartition": "oncelog.client.consumer_errors",
    "NonEmptyGroup": "oncelog.errors",
    "NotAssigned": "oncelog.client.consumer_errors",
    "NotClaimed": "oncelog.once.errors",
    "NotDeliveredYet": "oncelog.client.delivery",
    "NotFinished": "oncelog.spark.sink.errors",
    "NotPlanned": "oncelog.spark.sink.errors",
    "NotWhole": "oncelog.spark.sink.errors",
    "NothingToEnd": "oncelog.admin",
    "OffsetAndMetadata": "oncelog.client.consumer_records",
    "OffsetAndTimestamp": "oncelog.client.consumer_records",
    "OffsetOutOfRange": "oncelog.errors",
    "OffsetSpec": "oncelog.admin",
    "OffsetsBeyondLog": "oncelog.spark.source.losses",
    "OnceError": "oncelog.once.errors",
    "OncelogError": "oncelog.errors",
    "OutcomeForgotten": "oncelog.admin",
    "OutcomeUnknown": "oncelog.client.transaction_errors",
    "PartitionFenced": "oncelog.once.errors",
    "PartitionOffsets": "oncelog.client.table_result",
    "PartitionTakenTwice": "oncelog.once.errors",
    "PartitionerError": "oncelog.client.partitioner",
    "PoisonRecord": "oncelog.once.errors",
    "PolicyViolation": "oncelog.errors",
    "PositionBeyondEnd": "oncelog.once.errors",
    "PositionOutOfRange": "oncelog.client.consumer_errors",
    "PrefixInUse": "oncelog.spark.sink.errors",
    "PreparedTransaction": "oncelog.client.transaction.prepared",
    "ProcessReport": "oncelog.processing.report",
    "Producer": "oncelog.producer.producer",
    "ProducerClosed": "oncelog.client.producer_errors",
    "ProducerRecord": "oncelog.client.records",
    "ProducerSettings": "oncelog.client.typed_settings",
    "ProducerState": "oncelog.admin",
    "RecordDeserializationError": "oncelog.client.consumer_errors",
    "RecordFuture": "oncelog.client.delivery",
    "RecordMetadata": "oncelog.client.records",
    "RecordTooLarge": "oncelog.client.accumulator",
    "RecordsGone": "oncelog.spark.sink.errors",
    "RefusedWithOthers": "oncelog.client.producer_errors",
    "ResourceType": "oncelog.admin",
    "RolledBack": "oncelog.spark.sink.errors",
    "RowWithoutTopic": "oncelog.spark.sink.errors",
    "RowsFailed": "oncelog.client.table_result",
    "SerializationError": "oncelog.producer.serializers",
    "Serializer": "oncelog.producer.serializers",
    "SinkError": "oncelog.spark.sink.errors",
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
    "TooLate": "oncelog.spark.sink.errors",
    "TooManyFailures": "oncelog.client.failure_run",
    "TopicAlreadyExists": "oncelog.errors",
    "TopicAuthorizationFailed": "oncelog.errors",
    "TopicPartition": "oncelog.types",
    "TopicUnavailable": "oncelog.client.producer_errors",
    "TransactionCoordinatorFenced": "oncelog.errors",
    "TransactionDescription": "oncelog.admin",
    "TransactionError": "oncelog.client.transaction_errors",
    "TransactionFailed": "oncelog.client.transaction_errors",
    "TransactionListing": "oncelog.admin",
    "TransactionMisuse": "oncelog.client.transaction_errors",
    "TransactionState": "oncelog.admin",
    "TransactionalIdNotFound": "oncelog.errors",
    "TransactionalProducerFenced": "oncelog.client.transaction_errors",
    "UnknownMemberId": "oncelog.errors",
    "UnknownTopicOrPartition": "oncelog.errors",
    "UnreadableJournal": "oncelog.spark.sink.errors",
    "UnsupportedDatabase": "oncelog.once.errors",
    "UnsupportedVersion": "oncelog.errors",
    "WokenUp": "oncelog.client.consumer_errors",
    "process": "oncelog.processing.threads",
    "process_async": "oncelog.processing.tasks",
    "prometheus_collector": "oncelog.producer.metrics",
}

__all__ = [
    "AbortNeeded",
    "Admin",
    "AdminSettings",
    "AsyncConsumer",
    "AsyncProducer",
    "BadEffect",
    "BadIdentity",
    "BatchReport",
    "Broker",
    "BrokerFailed",
    "BrokersUnreachable",
    "BufferExhausted",
    "CommitFailed",
    "ConnectionLost",
    "Consumer",
    "ConsumerClosed",
    "ConsumerInUse",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerSettings",
    "ConsumerTimedOut",
    "CorruptMessage",
    "DatabaseUnavailable",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Deserializer",
    "EffectEndedTransaction",
    "Ended",
    "EndedOtherwise",
    "FencedInstanceId",
    "FencedProducer",
    "ForeignCheckpoint",
    "GroupAuthorizationFailed",
    "GroupIdNotFound",
    "GroupMetadata",
    "GroupSubscribedToTopic",
    "HangingTransaction",
    "Interceptor",
    "InvalidConfig",
    "InvalidOffset",
    "InvalidPartitions",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidRegularExpression",
    "InvalidRequest",
    "InvalidTopicException",
    "JournalFenced",
    "KafkaError",
    "LeaseHeld",
    "LeaseLost",
    "LogTruncated",
    "MaxPollExceeded",
    "MessageTooLarge",
    "NearExpiry",
    "NoOffsetForPartition",
    "NonEmptyGroup",
    "NotAssigned",
    "NotClaimed",
    "NotDeliveredYet",
    "NotFinished",
    "NotPlanned",
    "NotWhole",
    "NothingToEnd",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OffsetSpec",
    "OffsetsBeyondLog",
    "OnceError",
    "OncelogError",
    "OutcomeForgotten",
    "OutcomeUnknown",
    "PartitionFenced",
    "PartitionOffsets",
    "PartitionTakenTwice",
    "PartitionerError",
    "PoisonRecord",
    "PolicyViolation",
    "PositionBeyondEnd",
    "PositionOutOfRange",
    "PrefixInUse",
    "PreparedTransaction",
    "ProcessReport",
    "Producer",
    "ProducerClosed",
    "ProducerRecord",
    "ProducerSettings",
    "ProducerState",
    "RecordDeserializationError",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "RecordsGone",
    "RefusedWithOthers",
    "ResourceType",
    "RolledBack",
    "RowWithoutTopic",
    "RowsFailed",
    "SerializationError",
    "Serializer",
    "SinkError",
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
    "TooLate",
    "TooManyFailures",
    "TopicAlreadyExists",
    "TopicAuthorizationFailed",
    "TopicPartition",
    "TopicUnavailable",
    "TransactionCoordinatorFenced",
    "TransactionDescription",
    "TransactionError",
    "TransactionFailed",
    "TransactionListing",
    "TransactionMisuse",
    "TransactionState",
    "TransactionalIdNotFound",
    "TransactionalProducerFenced",
    "UnknownMemberId",
    "UnknownTopicOrPartition",
    "UnreadableJournal",
    "UnsupportedDatabase",
    "UnsupportedVersion",
    "WokenUp",
    "__version__",
    "audit",
    "errors",
    "faults",
    "once",
    "process",
    "process_async",
    "prometheus_collector",
    "spark",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        value = globals()[name] = getattr(import_module(home), name)
        return value
    if name in _MODULES:
        return import_module(f"oncelog.{name}")
    said = f"module 'oncelog' has no attribute {name!r}"
    if name[:1].isupper():  # any other error of Kafka's protocol, too
        errors = import_module("oncelog.errors")
        found = getattr(errors, name, None)
        if isinstance(found, type) and issubclass(found, errors.OncelogError):
            return found
        foreign = import_module("oncelog.client.foreign_calls").NAMES
        said += f": {foreign[name]}" if name in foreign else ""
    raise AttributeError(said)


def __dir__() -> list[str]:
    """What is public, and no more: neither what this module needs nor what happens to be imported."""
    return sorted(__all__)
