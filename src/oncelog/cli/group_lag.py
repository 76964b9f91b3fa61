"""How far a group is behind: committed offsets against the ends of the logs, partition by partition."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from oncelog.admin import Admin, GroupMember, OffsetSpec
from oncelog.errors import UnknownTopicOrPartition
from oncelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    """None for a topic that is gone."""
    client_id: str | None
    host: str | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupLag:
    group_id: str
    type: str
    state: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        return sum(one.lag or 0 for one in self.partitions)

    def rate_since(self, earlier: GroupLag | None, elapsed_s: float) -> float | None:
        """Records per second that the group committed since then."""
        if earlier is None or elapsed_s <= 0:
            return None
        before = {(one.topic, one.partition): one.committed for one in earlier.partitions}
        moved = 0
        for one in self.partitions:
            was = before.get((one.topic, one.partition))
            if was is not None and one.committed is not None:
                moved += max(0, one.committed - was)
        return moved / elapsed_s

    def as_dict(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "type": self.type,
            "state": self.state,
            "lag": self.total,
            "partitions": [{**asdict(one), "lag": one.lag} for one in self.partitions],
        }


def measure(admin: Admin, group_id: str) -> GroupLag:
    """Raises GroupIdNotFound."""
    group = admin.describe_group(group_id)
    committed = admin.list_group_offsets(group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    ends = _ends(admin, partitions)
    return GroupLag(
        group_id,
        group.type,
        group.state,
        tuple(
            _partition_lag(
                partition,
                committed[partition].offset if partition in committed else None,
                ends.get(partition),
                readers.get(partition),
            )
            for partition in partitions
        ),
    )


def _partition_lag(
    partition: TopicPartition, committed: int | None, end: int | None, reader: GroupMember | None
) -> PartitionLag:
    if reader is None:
        return PartitionLag(*partition, committed, end, None, None, None)
    return PartitionLag(*partition, committed, end, reader.client_id, reader.client_host, reader.member_id)


def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """A topic may be gone while the group still has offsets of it."""
    found: dict[TopicPartition, int] = {}
    for topic in {partition.topic for partition in partitions}:
        wanted = [partition for partition in partitions if partition.topic == topic]
        try:
            listed = admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        except UnknownTopicOrPartition:
            continue
        found.update({partition: one.offset for partition, one in listed.items()})
    return found
