"""The target assignment of a group's epoch: whom its assignor gives what, as records.

Only what changed is written. Owns the choice of the assignor, and how long a target stands at least; never says when a
member gets what it is given.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from oncelog.coordinator.consumer.assignors import ASSIGNORS, Subscriber
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import target_epoch_record, target_record
from oncelog.coordinator.consumer.subscription import existing_ids
from oncelog.coordinator.effects import TopicsView
from oncelog.coordinator.records import CoordinatorRecord

SMALL_SIZE = 250
"""Members and partitions, together, of a group that gets a target with every change: that takes half a millisecond."""

SIZE_PER_MS = 20
"""Of a larger one the last target stands for a millisecond per so many members and partitions. A target takes time in
proportion to them, so hundreds that join together would make everybody wait in proportion to their square. This way no
group takes more than some tenth of the broker's time for that, and whoever joins alone still gets its part at once."""

MAX_STANDING_MS = 1_000
"""Kafka lets every target stand for as long (`group.consumer.assignment.interval.ms`), however small the group."""


def stands_for_ms(group: ConsumerGroup, topics: TopicsView, now_ms: int) -> int:
    """How much longer the present target stands, whatever has changed; 0 if another one may be computed now."""
    if not group.assignment_epoch > 0 or group.assigned_at_ms > now_ms:
        return 0
    since_ms = now_ms - group.assigned_at_ms
    if since_ms >= MAX_STANDING_MS:
        return 0
    size = len(group.members) + sum(topics.partition_count(name) or 0 for name in group.topics)
    return 0 if size <= SMALL_SIZE else max(0, min(MAX_STANDING_MS, size // SIZE_PER_MS) - since_ms)


def preferred_assignor(group: ConsumerGroup, offered: tuple[str, ...]) -> str:
    """The one that most members ask for; the first of those that the broker offers, if none asks."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor in offered)
    return max(offered, key=lambda name: votes[name])


def target_records(
    group: ConsumerGroup, topics: TopicsView, offered: tuple[str, ...], now_ms: int
) -> list[CoordinatorRecord]:
    ids_of: dict[frozenset[str], frozenset[UUID]] = {}
    subscribers = []
    for member in group.members.values():
        names = group.topics_of(member)
        if names not in ids_of:
            ids_of[names] = existing_ids(names, topics)
        given = group.target_of(member.member_id)
        subscribers.append(Subscriber(member.member_id, member.instance_id, ids_of[names], given))
    counts = {
        topic_id: topics.partition_count(name) or 0
        for name in group.topics
        if (topic_id := topics.topic_id(name)) is not None
    }
    assigned = ASSIGNORS[preferred_assignor(group, offered)](subscribers, counts)
    had = group.target
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in assigned.items()
        if (before := had.get(member_id)) is not target and (before is None or before != target)
    ]
    return [*records, target_epoch_record(group.group_id, group.group_epoch, now_ms)]
