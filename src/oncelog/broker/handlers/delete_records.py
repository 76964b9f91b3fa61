"""DeleteRecords (key 21), versions 0-2, which differ only in form (2 is flexible).

Moves the start of the log; the space comes back with the next retention check. One replica: answered at once, so the
timeout has no use. The new start is in the manifest before the answer goes, and so survives this process; it is on the
disk with the next flush: as with Kafka, records may come back if the power fails before. Offset -1 means the high
watermark. Internal topics are refused with INVALID_TOPIC_EXCEPTION, topics that are only compacted with
POLICY_VIOLATION, as with Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.controller.topic_names import is_internal
from oncelog.errors import InvalidTopicException, KafkaError, PolicyViolation
from oncelog.types import NO_OFFSET, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DELETE_RECORDS


def handle(broker: BrokerState, request: Request) -> Message:
    return {"topics": [_answer_topic(broker, topic) for topic in request.body["topics"]]}


def _answer_topic(broker: BrokerState, topic: Message) -> Message:
    offsets = {partition["partition_index"]: partition["offset"] for partition in topic["partitions"]}
    answers = []
    for index, offset in offsets.items():
        try:
            low_watermark = _delete(broker, TopicPartition(topic["name"], index), offset)
            answers.append({"partition_index": index, "low_watermark": low_watermark})
        except KafkaError as error:
            answers.append({"partition_index": index, "low_watermark": NO_OFFSET, "error_code": error.code})
    return {"name": topic["name"], "partitions": answers}


def _delete(broker: BrokerState, partition: TopicPartition, before_offset: int) -> int:
    log = broker.partition(partition.topic, partition.partition)
    if is_internal(partition.topic):
        raise InvalidTopicException(f"records of the internal topic {partition.topic} cannot be deleted")
    if log.config.compacts and not log.config.deletes:
        raise PolicyViolation(f"Records of partition {partition} can not be deleted due to the configured policy")
    low_watermark = log.delete_records(before_offset)
    broker.purgatory.changed(partition)
    return low_watermark
