"""Who may act as whom: sizes of groups, static instances. The same for both protocols."""

from __future__ import annotations

from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.member import Member
from oncelog.coordinator.effects import GroupSettings
from oncelog.errors import FencedInstanceId, GroupMaxSizeReached, UnknownMemberId


def check_room(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    if len(group.members) >= settings.group_consumer_max_size and member_id not in group.members:
        raise GroupMaxSizeReached(
            f"group {group.group_id!r} has {len(group.members)} members, as many as group.consumer.max.size allows"
        )


def static_member(group: ConsumerGroup, instance_id: str) -> Member:
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"instance {instance_id!r} is not in group {group.group_id!r}; join again")
    return member


def check_is_current(member: Member, member_id: str) -> None:
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"member {member_id!r} was replaced: instance {member.instance_id!r} is now member {member.member_id!r}"
        )


def identified(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        return group.member(member_id)
    member = static_member(group, instance_id)
    check_is_current(member, member_id)
    return member
