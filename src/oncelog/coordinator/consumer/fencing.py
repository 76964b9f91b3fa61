"""How members go: out of the group, or the group with them, if only members of the classic protocol are left."""

from __future__ import annotations

from collections.abc import Collection, Container

from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.member import Member
from oncelog.coordinator.consumer.membership import Surroundings, remove
from oncelog.coordinator.consumer.migration import downgrade, may_downgrade
from oncelog.coordinator.consumer.sessions import Sessions
from oncelog.coordinator.groups import GroupMap
from oncelog.coordinator.records import CoordinatorRecord


def fence(
    group: ConsumerGroup, members: Collection[Member], groups: GroupMap, sessions: Sessions, around: Surroundings
) -> list[CoordinatorRecord]:
    if not members:
        return []
    leaving = {member.member_id for member in members}
    if _only_classic_members_stay(group, leaving) and may_downgrade(
        staying := [member for member in group.members.values() if member.member_id not in leaving], around.settings
    ):
        groups.rebalance_wanted.add(group.group_id)
        sessions.end(group)
        return downgrade(group, staying, around)
    draft = Draft(group)
    remove(draft, members, around.topics)
    return draft.records


def _only_classic_members_stay(group: ConsumerGroup, leaving: Container[str]) -> bool:
    """Found out with the first member of the new protocol that stays: mostly that is the first of all."""
    return all(member.classic is not None or member.member_id in leaving for member in group.members.values())
