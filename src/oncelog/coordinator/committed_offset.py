"""What a group has committed for one partition. A value; what becomes of it is decided elsewhere."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET
from oncelog.wire.codec import Message
from oncelog.wire.schema import ZERO_UUID

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """NO_EXPIRY unless the client that committed it had its own idea."""
    topic_id: UUID = ZERO_UUID
    """Tells offsets of a topic from those of an earlier one of the same name."""
    log_offset: int = NO_OFFSET
    """Where its record is. Of two commits the one further on in the log is the newer, whichever became true first."""


NOTHING_COMMITTED = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", -1, NO_EXPIRY)


def of_record(value: Message, log_offset: int) -> CommittedOffset:
    """Records of the legacy type have three of these fields."""
    return CommittedOffset(
        value["offset"],
        value.get("leader_epoch", NO_LEADER_EPOCH),
        value["metadata"],
        value["commit_timestamp"],
        value.get("expire_timestamp", NO_EXPIRY),
        value.get("topic_id", ZERO_UUID),
        log_offset,
    )
