"""How far a group is behind, partition by partition: the records that are left to read from its committed offsets on.

Nobody but its members knows whether a group reads committed records only; whoever asks says which.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from oncelog.admin import Admin, GroupMember, Lag, OffsetSpec
from oncelog.admin.lag import OnRead
from oncelog.errors import UnknownTopicOrPartition
from oncelog.types import IsolationLevel, TopicPartition

WINDOW_S = 30.0
"""Longer than the five seconds after which clients commit by default, so that a steady group has a steady rate."""
MAX_LOOKS = 1_000
"""How many are kept of a window, whatever the interval."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    """None for a topic that is gone. For committed records, where the first transaction begins that has not ended."""
    lag: Lag | None
    """None where nothing is committed, or the topic is gone."""
    client_id: str | None
    host: str | None
    member_id: str | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "end": self.end,
            "lag": None if self.lag is None else self.lag.records,
            "lag_is_exact": None if self.lag is None else self.lag.is_exact,
            "client_id": self.client_id,
            "host": self.host,
            "member_id": self.member_id,
        }


@dataclass(frozen=True, slots=True)
class GroupLag:
    group_id: str
    type: str
    state: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> Lag:
        lags = [one.lag for one in self.partitions if one.lag is not None]
        return Lag(sum(lag.records for lag in lags), 0, all(lag.is_exact for lag in lags))

    def moved_since(self, earlier: GroupLag) -> int:
        """How many offsets the group went forward since then; what was not committed at that time does not count."""
        before = {(one.topic, one.partition): one.committed for one in earlier.partitions}
        moved = 0
        for one in self.partitions:
            was = before.get((one.topic, one.partition))
            if was is not None and one.committed is not None:
                moved += max(0, one.committed - was)
        return moved

    def as_dict(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "type": self.type,
            "state": self.state,
            "lag": self.total.records,
            "lag_is_exact": self.total.is_exact,
            "partitions": [one.as_dict() for one in self.partitions],
        }


class RateWindow:
    """How fast a group commits, over the last while: consumers commit every few seconds, so what was committed between
    two looks is nothing most of the time, and then everything at once."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, GroupLag]] = deque()

    def rate(self, now_s: float, lag: GroupLag) -> float | None:
        """In records per second; None at the first look."""
        seen = self._seen
        if len(seen) == MAX_LOOKS:
            seen.popleft()
        seen.append((now_s, lag))
        while len(seen) > 2 and now_s - seen[1][0] >= self._window_s:
            seen.popleft()
        began_s = seen[0][0]
        if now_s <= began_s:
            return None
        steps = zip(seen, list(seen)[1:], strict=False)
        return sum(later.moved_since(earlier) for (_, earlier), (_, later) in steps) / (now_s - began_s)


def measure(
    admin: Admin, group_id: str, isolation: IsolationLevel, *, exact: bool = False, on_read: OnRead | None = None
) -> GroupLag:
    """Raises GroupIdNotFound."""
    group = admin.describe_group(group_id)
    committed = {partition: one.offset for partition, one in admin.list_group_offsets(group_id).items()}
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    ends = _ends(admin, partitions, isolation)
    offsets = {partition: committed[partition] for partition in partitions if partition in committed.keys() & ends}
    lags = admin.list_lags(offsets, isolation_level=isolation, exact=exact, on_read=on_read)
    return GroupLag(
        group_id,
        group.type,
        group.state,
        tuple(
            _partition_lag(
                partition,
                committed.get(partition),
                ends.get(partition),
                lags.get(partition),
                readers.get(partition),
            )
            for partition in partitions
        ),
    )


def _partition_lag(
    partition: TopicPartition, committed: int | None, end: int | None, lag: Lag | None, reader: GroupMember | None
) -> PartitionLag:
    if lag is not None:
        end = lag.end_offset  # which the count is about
    if reader is None:
        return PartitionLag(*partition, committed, end, lag, None, None, None)
    return PartitionLag(*partition, committed, end, lag, reader.client_id, reader.client_host, reader.member_id)


def _ends(admin: Admin, partitions: list[TopicPartition], isolation: IsolationLevel) -> dict[TopicPartition, int]:
    """A topic may be gone while the group still has offsets of it."""
    found: dict[TopicPartition, int] = {}
    for topic in {partition.topic for partition in partitions}:
        wanted = [partition for partition in partitions if partition.topic == topic]
        try:
            listed = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), isolation_level=isolation)
        except UnknownTopicOrPartition:
            continue
        found.update({partition: one.offset for partition, one in listed.items()})
    return found
