"""Values that every room shares. No behaviour beyond arithmetic, no imports from other rooms."""

from __future__ import annotations

from enum import IntEnum

from oncelog.named_tuple import NamedTuple

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_LEADER_EPOCH = -1

MAX_SEQUENCE = 2**31 - 1
MAX_PRODUCER_EPOCH = 2**15 - 1


def advance_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`. 2^31-1 is followed by 0; no other place knows that."""
    return (sequence + count) % (MAX_SEQUENCE + 1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
