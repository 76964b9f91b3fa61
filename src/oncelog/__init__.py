"""oncelog: exactly-once messages for Python, over a log and a broker that speak Apache Kafka's protocol.

What is public is exported here and loaded on first use, so that `import oncelog` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.admin import Admin as Admin
    from oncelog.broker.process import Broker as Broker
    from oncelog.broker.process import BrokerFailed as BrokerFailed
    from oncelog.client.accumulator import RecordTooLarge as RecordTooLarge
    from oncelog.client.delivery import NotDeliveredYet as NotDeliveredYet
    from oncelog.client.delivery import RecordFuture as RecordFuture
    from oncelog.client.partitioner import PartitionerError as PartitionerError
    from oncelog.client.producer_errors import BufferExhausted as BufferExhausted
    from oncelog.client.producer_errors import DeliveryFailed as DeliveryFailed
    from oncelog.client.producer_errors import DeliveryTimedOut as DeliveryTimedOut
    from oncelog.client.producer_errors import ProducerClosed as ProducerClosed
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
    from oncelog.errors import KafkaError as KafkaError
    from oncelog.errors import OncelogError as OncelogError
    from oncelog.producer.async_producer import AsyncProducer as AsyncProducer
    from oncelog.producer.interceptors import Interceptor as Interceptor
    from oncelog.producer.metrics import prometheus_collector as prometheus_collector
    from oncelog.producer.producer import Producer as Producer
    from oncelog.producer.serializers import SerializationError as SerializationError
    from oncelog.producer.serializers import Serializer as Serializer
    from oncelog.records.model import TableError as TableError
    from oncelog.types import TopicPartition as TopicPartition

__version__ = "0.1.0"

_HOMES = {
    "Admin": "oncelog.admin",
    "AsyncProducer": "oncelog.producer.async_producer",
    "Broker": "oncelog.broker.process",
    "BrokerFailed": "oncelog.broker.process",
    "BufferExhausted": "oncelog.client.producer_errors",
    "DeliveryFailed": "oncelog.client.producer_errors",
    "DeliveryTimedOut": "oncelog.client.producer_errors",
    "Interceptor": "oncelog.producer.interceptors",
    "KafkaError": "oncelog.errors",
    "NotDeliveredYet": "oncelog.client.delivery",
    "OncelogError": "oncelog.errors",
    "PartitionOffsets": "oncelog.client.table_result",
    "PartitionerError": "oncelog.client.partitioner",
    "Producer": "oncelog.producer.producer",
    "ProducerClosed": "oncelog.client.producer_errors",
    "ProducerRecord": "oncelog.client.records",
    "RecordFuture": "oncelog.client.delivery",
    "RecordMetadata": "oncelog.client.records",
    "RecordTooLarge": "oncelog.client.accumulator",
    "RowsFailed": "oncelog.client.table_result",
    "SerializationError": "oncelog.producer.serializers",
    "Serializer": "oncelog.producer.serializers",
    "SpoolError": "oncelog.client.spool.errors",
    "SpoolFateUnknown": "oncelog.client.spool.errors",
    "SpoolFull": "oncelog.client.spool.errors",
    "SpoolInUse": "oncelog.client.spool.errors",
    "SpoolWriteFailed": "oncelog.client.spool.errors",
    "TableError": "oncelog.records.model",
    "TableFailed": "oncelog.client.table_result",
    "TableFuture": "oncelog.client.table_result",
    "TableMetadata": "oncelog.client.table_result",
    "TopicPartition": "oncelog.types",
    "TopicUnavailable": "oncelog.client.producer_errors",
    "prometheus_collector": "oncelog.producer.metrics",
}

__all__ = [
    "Admin",
    "AsyncProducer",
    "Broker",
    "BrokerFailed",
    "BufferExhausted",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "Interceptor",
    "KafkaError",
    "NotDeliveredYet",
    "OncelogError",
    "PartitionOffsets",
    "PartitionerError",
    "Producer",
    "ProducerClosed",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLarge",
    "RowsFailed",
    "SerializationError",
    "Serializer",
    "SpoolError",
    "SpoolFateUnknown",
    "SpoolFull",
    "SpoolInUse",
    "SpoolWriteFailed",
    "TableError",
    "TableFailed",
    "TableFuture",
    "TableMetadata",
    "TopicPartition",
    "TopicUnavailable",
    "__version__",
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
