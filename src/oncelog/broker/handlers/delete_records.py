"""DeleteRecords (key 21), versions 0-2, which differ only in form (2 is flexible).

Moves the start of the log; the space comes back with the next retention check. One replica: answered at once, so the
timeout has no use. The new start is in the manifest before the answer goes, and so survives this process; it is on the
disk with the next flush: as with Kafka, records may come back if the power fails before. Offset -1 means the high
watermark. Internal topics are refused with INVALID_TOPIC_EXCEPTION, topics that are only compacted with
POLICY_VIOLATION, as with Kafka. Many partitions take their time, in which others are served; what a client that goes
meanwhile has asked for last is not done then.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from oncelog.broker.dispatch import api_name, response_schema
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.topic_names import is_internal
from oncelog.errors import InvalidTopicException, KafkaError, PolicyViolation
from oncelog.types import NO_OFFSET, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, encoded_elements

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DELETE_RECORDS


MAX_AT_ONCE: Final = 5
"""Partitions whose records are deleted without a look at the clock: each takes a millisecond, for its files."""


def handle(broker: BrokerState, request: Request) -> Answer:
    topics = request.body["topics"]
    if sum(len(topic["partitions"]) for topic in topics) > MAX_AT_ONCE:
        return Piecewise(
            {}, "topics", chain.from_iterable(_in_steps(broker, topic, request.version) for topic in topics)
        )
    return {"topics": [{"name": topic["name"], "partitions": list(_answers(broker, topic))} for topic in topics]}


def _in_steps(broker: BrokerState, topic: Message, version: int) -> Iterator[Message | None]:
    """After each partition the clock may be looked at."""
    partitions = encoded_elements(response_schema(API_KEY), version, "topics", "partitions")
    for answer in _answers(broker, topic):
        broker.metrics.count_errors(api_name(API_KEY), answer)
        partitions.append(answer)
        yield None
    yield {"name": topic["name"], "partitions": partitions}


def _answers(broker: BrokerState, topic: Message) -> Iterator[Message]:
    offsets = {partition["partition_index"]: partition["offset"] for partition in topic["partitions"]}
    for index, offset in offsets.items():
        try:
            low_watermark = _delete(broker, TopicPartition(topic["name"], index), offset)
            yield {"partition_index": index, "low_watermark": low_watermark}
        except KafkaError as error:
            yield {"partition_index": index, "low_watermark": NO_OFFSET, "error_code": error.code}


def _delete(broker: BrokerState, partition: TopicPartition, before_offset: int) -> int:
    log = broker.partition(partition.topic, partition.partition)
    if is_internal(partition.topic):
        raise InvalidTopicException(f"records of the internal topic {partition.topic} cannot be deleted")
    if log.config.compacts and not log.config.deletes:
        raise PolicyViolation(f"Records of partition {partition} can not be deleted due to the configured policy")
    low_watermark = log.delete_records(before_offset)
    broker.purgatory.changed(partition)
    return low_watermark
