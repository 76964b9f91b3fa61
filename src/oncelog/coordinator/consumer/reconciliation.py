"""The way of one member from what it holds to what the target assignment gives it.

A partition changes hands in two steps: the old owner is told to give it up and says that it has, then the new one gets
it. In between nobody has it; at no time two do. Owns that rule; never knows why the target is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple
from uuid import UUID

from oncelog.coordinator.consumer.member import HeldPartitions, Member, MemberState, Partitions, holds_any
from oncelog.errors import FencedMemberEpoch

OwnerOf = Callable[[UUID, int], str | None]
"""Which member holds the partition, be it assigned or not yet given up."""


class Goal(NamedTuple):
    """Where the member is to arrive."""

    epoch: int
    target: Partitions
    subscribed: Set[UUID]
    """The topics that the member reads. What the target still gives it of others is not for it any more."""


def reconcile(
    member: Member, goal: Goal, owner_of: OwnerOf, owned: Partitions | None, subscription_changed: bool
) -> Member:
    """The member after its next step, or the same one if it has to wait. `owned` is what the member says to have; None
    says nothing."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _next_step(member, goal, owner_of, owned)
            return _without_unsubscribed(member, goal.subscribed, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _still_has(owned, member.revoking):
                return _next_step(member, goal, owner_of, owned)
            return _without_unsubscribed(member, goal.subscribed, owned) if subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(member, goal, owner_of, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise FencedMemberEpoch("the member is in an unknown state; it must give up its partitions and rejoin")
            return _next_step(member, goal, owner_of, owned)


def _still_has(owned: Partitions | None, revoking: HeldPartitions) -> bool:
    """A member that does not say what it has may have everything."""
    return owned is None or holds_any(revoking, owned)


def _next_step(member: Member, goal: Goal, owner_of: OwnerOf, owned: Partitions | None) -> Member:
    keep: dict[UUID, dict[int, int]] = {}
    give_up: dict[UUID, dict[int, int]] = {}
    take: dict[UUID, list[int]] = {}
    has_to_wait = False
    for topic_id in {**goal.target, **member.assigned}:
        wanted = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset[int]()
        held = member.assigned.get(topic_id, {})
        for partition, epoch in held.items():
            (keep if partition in wanted else give_up).setdefault(topic_id, {})[partition] = epoch
        for partition in wanted:
            if partition in held:
                continue
            if owner_of(topic_id, partition) in (None, member.member_id):
                take.setdefault(topic_id, []).append(partition)
            else:
                has_to_wait = True
    if give_up and _still_has(owned, give_up):
        return member.moved(member.epoch, MemberState.UNREVOKED_PARTITIONS, keep, give_up)
    for topic_id, partitions in take.items():
        keep.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if has_to_wait else MemberState.STABLE
    return member.moved(goal.epoch, state, keep)


def _without_unsubscribed(member: Member, subscribed: Set[UUID], owned: Partitions | None) -> Member:
    """A topic that the member no longer wants is taken from it at once, without waiting for a new target."""
    unwanted = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not unwanted:
        return member
    keep = {topic_id: held for topic_id, held in member.assigned.items() if topic_id in subscribed}
    revoking = {topic_id: dict(held) for topic_id, held in member.revoking.items()}
    for topic_id in unwanted:
        revoking.setdefault(topic_id, {}).update(member.assigned[topic_id])
    if _still_has(owned, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoking)
    return member.moved(member.epoch, member.state, keep)
