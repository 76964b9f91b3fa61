"""What a consumer tells and is told about offsets: plain values, shared by its cores and its shells.

Records themselves are `ConsumerRecord`, which the kernel makes.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.types import NO_LEADER_EPOCH

NO_GENERATION = -1
NO_MEMBER = ""


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    """The offset of the next record to read: one after the last that was processed."""
    metadata: str = ""
    """A note of the one who committed it."""
    leader_epoch: int = NO_LEADER_EPOCH
    """The epoch of the last record that was read, by which a truncated log is noticed; -1 if it is not known."""


class OffsetAndTimestamp(NamedTuple):
    """The first record that is not older than the time asked for."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = NO_LEADER_EPOCH


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group: what offset commits, and transactions that commit offsets, are checked by."""

    group_id: str
    generation_id: int = NO_GENERATION
    """The generation of the classic protocol, or the member epoch of the one of KIP-848."""
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None
