"""ListOffsets (key 2), versions 1-11.

Versions: 2 adds the isolation level; 4 leader epochs; 6 is flexible; each of these asks for one more special offset:
7 the record with the newest timestamp, 8 the first on local disk, 9 the last in tiered storage, 11 the first not yet
uploaded there. 10 adds a timeout for tiered storage, which does not exist here: its two offsets are answered with -1.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from oncelog.log.partition_log import PartitionLog
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, IsolationLevel
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_OFFSETS


class SpecialTimestamp(IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


FIRST_VERSIONS = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""
NOTHING: Found = (NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)


def handle(broker: BrokerState, request: Request) -> Message:
    return {"topics": [_answer_topic(broker, request, topic) for topic in request.body["topics"]]}


def _answer_topic(broker: BrokerState, request: Request, topic: Message) -> Message:
    times_asked = Counter(partition["partition_index"] for partition in topic["partitions"])
    partitions = {partition["partition_index"]: partition for partition in topic["partitions"]}
    answers = []
    for index, partition in partitions.items():
        try:
            if times_asked[index] > 1:
                raise InvalidRequest(f"partition {index} is asked for {times_asked[index]} times")
            timestamp, offset, epoch = _find(broker, request, topic["name"], partition)
            answers.append({"partition_index": index, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch})
        except KafkaError as error:
            answers.append({"partition_index": index, "error_code": error.code})
    return {"name": topic["name"], "partitions": answers}


def _find(broker: BrokerState, request: Request, name: str, partition: Message) -> Found:
    index, timestamp = partition["partition_index"], partition["timestamp"]
    if timestamp < 0 and request.version < FIRST_VERSIONS.get(timestamp, request.version + 1):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {request.version}")
    log = broker.partition(name, index)
    broker.check_leader_epoch(name, index, partition["current_leader_epoch"])
    readable_end = _readable_end(log, request.body["isolation_level"])
    if timestamp == SpecialTimestamp.LATEST:
        return NO_TIMESTAMP, readable_end, broker.leader_epoch(name, index)
    if timestamp in (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL):
        epoch = log.leader_epochs.entries[0].epoch if log.leader_epochs.entries else broker.leader_epoch(name, index)
        return NO_TIMESTAMP, log.log_start_offset, epoch
    if timestamp in (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD):
        return NOTHING
    is_newest = timestamp == SpecialTimestamp.MAX_TIMESTAMP
    found = log.max_timestamp() if is_newest else log.find_offset_by_timestamp(timestamp)
    if found is None or found.offset >= readable_end:
        return NOTHING
    return found.timestamp, found.offset, found.leader_epoch


def _readable_end(log: PartitionLog, isolation_level: int) -> int:
    if isolation_level == IsolationLevel.READ_UNCOMMITTED:
        return log.high_watermark
    if isolation_level == IsolationLevel.READ_COMMITTED:
        return log.last_stable_offset
    raise InvalidRequest(f"isolation level {isolation_level} does not exist")
