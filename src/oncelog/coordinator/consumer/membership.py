"""What becomes of a group when a member comes, says something new about itself, or goes. The same for both protocols.

A change has up to four parts, each a record or several: the member, the regular expressions, the group's epoch, the
target assignment. Then the member takes its next step towards the target. Owns that order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import (
    ResolvedRegex,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_record,
)
from oncelog.coordinator.consumer.member import JOINING_EPOCH, Member, Partitions
from oncelog.coordinator.consumer.reconciliation import Goal, reconcile
from oncelog.coordinator.consumer.resolving import Allowance, Resolutions
from oncelog.coordinator.consumer.subscription import existing_ids, metadata_hash
from oncelog.coordinator.consumer.target import stands_for_ms, target_records
from oncelog.coordinator.effects import GroupSettings, TopicsView

FIRST_EPOCH = 2
"""Of a new group. A member of epoch 1 has joined but is to have nothing yet, to Kafka, which may delay assignments."""


class Surroundings(NamedTuple):
    """What a decision needs besides the group."""

    settings: GroupSettings
    topics: TopicsView
    now_ms: int
    resolutions: Resolutions


def admit(draft: Draft, member: Member, owned: Partitions | None, around: Surroundings) -> Member:
    """A member, with all that it said of itself, enters the draft or is updated there. Then it takes its next step. As
    it is thereafter, it is returned. `owned` is what it says to have."""
    known = draft.group.members.get(member.member_id)
    if member is known and member.reached(draft.group.group_epoch):
        # The usual heartbeat has nothing to say.
        return member
    before = known if known is not None else Member(member.member_id)
    has_new_regex = member.topic_regex != before.topic_regex
    has_new_subscription = has_new_regex or member.topics != before.topics
    if member != known:
        draft.write(member_record(draft.group.group_id, member))
    if has_new_regex:
        _drop_unused_regexes(draft)
        _resolve_new_regex(draft, member.topic_regex, around)
    if has_new_subscription or draft.group.group_epoch == 0:
        bump_epoch(draft, around.topics)
    if draft.group.group_epoch > draft.group.assignment_epoch and not waits_for_target(draft.group, member, around):
        offered = around.settings.group_consumer_assignors
        draft.write(*target_records(draft.group, around.topics, offered, around.now_ms))
    return _take_step(draft, member, owned, has_new_subscription, around.topics)


def waits_for_target(group: ConsumerGroup, member: Member, around: Surroundings) -> int:
    """For how many milliseconds the member has to be content with the present target, although the group has changed. A
    member of the classic protocol never has to: it would only be told to join again, and again."""
    return 0 if member.classic is not None else stands_for_ms(group, around.topics, around.now_ms)


def _take_step(
    draft: Draft, member: Member, owned: Partitions | None, has_new_subscription: bool, topics: TopicsView
) -> Member:
    group = draft.group
    if member.reached(group.assignment_epoch) and not has_new_subscription:
        return member
    subscribed = existing_ids(group.topics_of(member), topics)
    goal = Goal(group.assignment_epoch, group.target_of(member.member_id), subscribed)
    moved = reconcile(member, goal, group.owner_of, owned, has_new_subscription)
    if moved != member:
        draft.finish(moved)
    return moved


def bump_epoch(draft: Draft, topics: TopicsView) -> None:
    """Something changed that asks for a new target assignment."""
    group = draft.group
    epoch = max(FIRST_EPOCH, group.group_epoch + 1)
    draft.write(epoch_record(group.group_id, epoch, metadata_hash(group.topics, topics)))
    if group.has_partition_metadata:
        draft.write(partition_metadata_tombstone(group.group_id))


def replace_static(draft: Draft, old: Member, member_id: str) -> Member:
    """A new member takes the place of a static one, with everything that was its own."""
    group_id, target = draft.group.group_id, draft.group.target_of(old.member_id)
    new = replace(old, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    draft.write(
        *member_tombstones(group_id, old.member_id),
        member_record(group_id, new),
        target_record(group_id, member_id, target),
        current_record(group_id, new),
    )
    return new


def remove(draft: Draft, members: Iterable[Member], topics: TopicsView) -> None:
    """They left, or were fenced: what they had is free for the next target assignment."""
    for member in members:
        draft.write(*member_tombstones(draft.group.group_id, member.member_id))
    _drop_unused_regexes(draft)
    bump_epoch(draft, topics)


def follow_topics(draft: Draft, around: Surroundings) -> None:
    """The cluster's topics changed, or an expression was resolved: where that concerns the group, it gets a new epoch.
    All of its expressions are resolved by now, or given up."""
    for regex in draft.group.used_regexes():
        known, topics = draft.group.regexes.get(regex), around.resolutions.topics(regex)
        if topics is not None and (known is None or topics != known.topics):
            draft.write(regex_record(draft.group.group_id, regex, ResolvedRegex(topics, around.now_ms)))
    if metadata_hash(draft.group.topics, around.topics) != draft.group.metadata_hash:
        bump_epoch(draft, around.topics)


def _resolve_new_regex(draft: Draft, regex: str, around: Surroundings) -> None:
    """Now, if that is little work. Else the member reads what it names, until somebody follows up. Raises
    InvalidRegularExpression."""
    if not regex or regex in draft.group.regexes:
        return
    resolutions = around.resolutions
    resolutions.look(around.topics.names())
    if resolutions.resolve(regex, Allowance()) and (topics := resolutions.topics(regex)) is not None:
        draft.write(regex_record(draft.group.group_id, regex, ResolvedRegex(topics, around.now_ms)))


def _drop_unused_regexes(draft: Draft) -> None:
    group = draft.group
    used = group.used_regexes()
    draft.write(*(regex_tombstone(group.group_id, regex) for regex in list(group.regexes) if regex not in used))
