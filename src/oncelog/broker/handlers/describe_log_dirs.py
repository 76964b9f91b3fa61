"""DescribeLogDirs (key 35), versions 1-5.

Versions: 2 is flexible; 3 adds an error for the whole; 4 the volume's size and free space; 5 cordoned directories,
which do not exist here. There is one directory. Null asks for all partitions, an empty list for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog.broker.dispatch import response_schema
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.errors import KafkaStorageError
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, encoded_elements

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_LOG_DIRS

PARTITIONS_PER_STEP: Final = 100
"""What is described between two looks at the clock: well below a millisecond."""


def handle(broker: BrokerState, request: Request) -> Answer:
    directory: Message = {"log_dir": broker.config.log_dir}
    try:
        directory["total_bytes"] = broker.storage.total_bytes(broker.config.log_dir)
        directory["usable_bytes"] = broker.storage.free_bytes(broker.config.log_dir)
    except OSError:
        directory["error_code"] = KafkaStorageError.code
    asked = _asked_partitions(broker, request.body["topics"])
    return Piecewise({}, "results", _described(broker, directory, asked, request.version))


def _asked_partitions(broker: BrokerState, topics: list[Message] | None) -> Iterable[tuple[str, Iterable[int]]]:
    if topics is None:
        return [(topic.name, list(topic.partitions)) for topic in broker.controller.state.topics.values()]
    asked: dict[str, dict[int, None]] = {}
    for topic in topics:
        asked.setdefault(topic["topic"], {}).update(dict.fromkeys(topic["partitions"]))
    return asked.items()


def _described(
    broker: BrokerState, directory: Message, asked: Iterable[tuple[str, Iterable[int]]], version: int
) -> Iterator[Message | None]:
    """The directory, in the end. Partitions that do not exist, or whose log could not be opened, are left out, as with
    Kafka."""
    schema = response_schema(API_KEY)
    topics = encoded_elements(schema, version, "results", "topics")
    for name, indexes in asked:
        found = encoded_elements(schema, version, "results", "topics", "partitions")
        for index in indexes:
            partition = TopicPartition(name, index)
            log = broker.logs.logs.get(partition)
            if log is not None or broker.is_unwritten(partition):
                size_bytes = log.size_bytes if log is not None else 0
                found.append({"partition_index": index, "partition_size": size_bytes})
                if len(found) % PARTITIONS_PER_STEP == 0:
                    yield None
        if found:
            topics.append({"name": name, "partitions": found})
        yield None
    yield {**directory, "topics": topics}
