"""DescribeLogDirs (key 35), versions 1-5.

Versions: 2 is flexible; 3 adds an error for the whole; 4 the volume's size and free space; 5 cordoned directories,
which do not exist here. There is one directory. Null asks for all partitions, an empty list for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import KafkaStorageError
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_LOG_DIRS


def handle(broker: BrokerState, request: Request) -> Message:
    directory: Message = {"log_dir": broker.config.log_dir}
    try:
        directory["total_bytes"] = broker.storage.total_bytes(broker.config.log_dir)
        directory["usable_bytes"] = broker.storage.free_bytes(broker.config.log_dir)
    except OSError:
        directory["error_code"] = KafkaStorageError.code
    directory["topics"] = _topics(broker, _asked_partitions(broker, request.body["topics"]))
    return {"results": [directory]}


def _asked_partitions(broker: BrokerState, topics: list[Message] | None) -> list[TopicPartition]:
    if topics is None:
        known = broker.controller.state.topics.values()
        return [TopicPartition(topic.name, index) for topic in known for index in topic.partitions]
    return [TopicPartition(topic["topic"], index) for topic in topics for index in topic["partitions"]]


def _topics(broker: BrokerState, partitions: list[TopicPartition]) -> list[Message]:
    """Partitions that do not exist, or whose log could not be opened, are left out, as with Kafka."""
    described: dict[str, list[Message]] = {}
    for partition in dict.fromkeys(partitions):
        log = broker.logs.logs.get(partition)
        if log is not None or broker.is_unwritten(partition):
            size_bytes = log.size_bytes if log is not None else 0
            described.setdefault(partition.topic, []).append(
                {"partition_index": partition.partition, "partition_size": size_bytes}
            )
    return [{"name": name, "partitions": found} for name, found in described.items()]
