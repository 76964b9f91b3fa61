"""ConsumerGroupDescribe (69), versions 0-1: a group and its members, as tools show them. Version 1 has their types."""

from __future__ import annotations

from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.member import Member, Partitions, partitions_of
from oncelog.coordinator.consumer.target import preferred_assignor
from oncelog.coordinator.effects import TopicsView
from oncelog.wire.codec import Message

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_group(group: ConsumerGroup, topics: TopicsView, assignors: tuple[str, ...]) -> Message:
    return {
        "group_id": group.group_id,
        "group_state": group.state_name,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": preferred_assignor(group, assignors),
        "members": [_describe_member(group, member, topics) for member in group.members.values()],
    }


def _describe_member(group: ConsumerGroup, member: Member, topics: TopicsView) -> Message:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.topic_regex or None,
        "assignment": _assignment(partitions_of(member.assigned), topics),
        "target_assignment": _assignment(group.target_of(member.member_id), topics),
        "member_type": CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    }


def _assignment(partitions: Partitions, topics: TopicsView) -> Message:
    """Topics that were deleted in the meantime have no name, and are left out."""
    named = [
        {"topic_id": topic_id, "topic_name": name, "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    return {"topic_partitions": sorted(named, key=lambda topic: str(topic["topic_name"]))}
