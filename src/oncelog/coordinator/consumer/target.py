"""The target assignment of a group's epoch: whom its assignor gives what, as records.

Only what changed is written. Owns the choice of the assignor; never says when a member gets what it is given.
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
        had = group.target_of(member.member_id)
        subscribers.append(Subscriber(member.member_id, member.instance_id, ids_of[names], had))
    counts = {
        topic_id: topics.partition_count(name) or 0
        for name in group.topics
        if (topic_id := topics.topic_id(name)) is not None
    }
    assigned = ASSIGNORS[preferred_assignor(group, offered)](subscribers, counts)
    records = [
        target_record(group.group_id, member_id, target)
        for member_id, target in assigned.items()
        if member_id not in group.target or target != group.target[member_id]
    ]
    return [*records, target_epoch_record(group.group_id, group.group_epoch, now_ms)]
