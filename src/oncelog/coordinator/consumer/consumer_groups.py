"""All consumer groups of one coordinator: the requests of their members, and what becomes due.

Every request ends as records and a reply. Owns who may do what (epochs, static instances, sizes) and the soft state;
what a group becomes is decided in `membership`, and only `replay` makes it so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from oncelog.coordinator.consumer.classic_members import ClassicMembers
from oncelog.coordinator.consumer.describe import describe_group
from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.fencing import fence
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import current_record
from oncelog.coordinator.consumer.heartbeat_request import check_heartbeat, error_answer, is_full, owned_partitions
from oncelog.coordinator.consumer.identity import check_is_current, check_room, static_member
from oncelog.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Member,
    MemberState,
    Partitions,
    holds_all,
)
from oncelog.coordinator.consumer.membership import (
    Surroundings,
    admit,
    follow_topics,
    replace_static,
    waits_for_target,
)
from oncelog.coordinator.consumer.migration import upgrade
from oncelog.coordinator.consumer.resolving import Allowance, Resolutions
from oncelog.coordinator.consumer.sessions import Clock, Due, Sessions
from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply, TopicsView, answer, no_effects
from oncelog.coordinator.groups import GroupMap
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidRegularExpression,
    KafkaError,
    UnreleasedInstanceId,
)
from oncelog.wire.codec import Message

logger = logging.getLogger(__name__)

GROUP_WORK = 10
"""What it takes to see that a change of topics does not concern a group; each topic that it reads takes one more."""


class ConsumerGroups:
    def __init__(
        self, settings: GroupSettings, topics: TopicsView, groups: GroupMap, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._new_id = new_id
        self._sessions = Sessions(settings)
        self._classic = ClassicMembers(groups, self._sessions, new_id)
        self._resolutions = Resolutions()
        self._unfollowed: dict[str, None] = {}
        """Groups that may not know the topics as they are, or what an expression of theirs means; in their order."""
        self._must_look = True

    # Members of the consumer protocol.

    def heartbeat(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            check_heartbeat(body, caller.version, self._settings.group_consumer_assignors)
            if body["member_epoch"] in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
                return self._leave(body, caller, self._around(now_ms))
            return self._beat(body, caller, self._around(now_ms))
        except KafkaError as error:
            return answer(caller, error_answer(error))

    def _beat(self, body: Message, caller: Caller, around: Surroundings) -> Effects:
        now_ms = around.now_ms
        draft, released = self._enter(body["group_id"], body["member_epoch"] == JOINING_EPOCH, around)
        check_room(draft.group, body["member_id"], self._settings)
        owned = owned_partitions(body)
        known = self._identify(draft, body, owned)
        updated = _updated(known, body, caller)
        if updated.topic_regex:
            self._resolutions.forget_unused(self._used_regexes)
            self._resolutions.check(updated.topic_regex)
        moved = admit(draft, updated, owned, around)
        if updated.topic_regex and updated.topic_regex not in draft.group.regexes:
            self._unfollowed.setdefault(draft.group.group_id)
        self._sessions.alive(draft.group.group_id, moved, now_ms)
        if (moved.state, moved.epoch, moved.revoking) != (known.state, known.epoch, known.revoking):
            self._sessions.moved(draft.group.group_id, moved, now_ms)
        tells_assignment = body["member_epoch"] == JOINING_EPOCH or is_full(body) or moved.assigned != known.assigned
        reply = Reply(caller.ticket, self._heartbeat_answer(draft.group, moved, tells_assignment, around))
        return Effects(draft.records, [*released, reply])

    def _enter(self, group_id: str, is_joining: bool, around: Surroundings) -> tuple[Draft, list[Reply]]:
        """The group to work on, and the replies to those who waited in a classic group that it replaces."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return Draft(group), []
        if not is_joining:
            kind = "no group" if group is None else "no consumer group"
            raise GroupIdNotFound(f"there is {kind} {group_id!r}")
        if group is None:
            return Draft(ConsumerGroup(group_id)), []
        if group.is_empty:
            return Draft(ConsumerGroup(group_id), group.tombstones()), []
        draft, released = upgrade(group, around)
        self._sessions.begin(draft.group, around.now_ms)
        return draft, released

    def _identify(self, draft: Draft, body: Message, owned: Partitions | None) -> Member:
        """The member as it was before this request; a new one, if it joins."""
        member_id = body["member_id"] or self._new_id()
        is_joining = body["member_epoch"] == JOINING_EPOCH
        if body["instance_id"] is not None:
            return _identify_static(draft, member_id, body, owned)
        if is_joining:
            return draft.group.members.get(member_id) or Member(member_id)
        member = draft.group.member(member_id)
        _check_epoch(member, body["member_epoch"], owned)
        return member

    def _heartbeat_answer(
        self, group: ConsumerGroup, member: Member, tells_assignment: bool, around: Surroundings
    ) -> Message:
        """Who has to wait for the next target is asked to come when it is due, not an interval later."""
        interval_ms = self._sessions.heartbeat_interval_ms(group.group_id)
        if group.group_epoch > group.assignment_epoch:
            interval_ms = min(interval_ms, waits_for_target(group, member, around) or interval_ms)
        return {
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval_ms": interval_ms,
            "assignment": _assignment(member) if tells_assignment else None,
        }

    def _leave(self, body: Message, caller: Caller, around: Surroundings) -> Effects:
        group = self.existing(body["group_id"])
        if body["instance_id"] is None:
            member = group.member(body["member_id"])
        else:
            member = static_member(group, body["instance_id"])
            check_is_current(member, body["member_id"])
        reply = Reply(caller.ticket, {"member_id": member.member_id, "member_epoch": body["member_epoch"]})
        if body["member_epoch"] == STATIC_LEAVING_EPOCH:
            away = replace(member, epoch=STATIC_LEAVING_EPOCH, revoking={})
            return Effects([current_record(group.group_id, away)], [reply])
        self._sessions.gone(group.group_id, member.member_id)
        return Effects(fence(group, [member], self._groups, self._sessions, around), [reply])

    # Members of the classic protocol that are in a consumer group.

    def join(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return self._classic.join(self.existing(body["group_id"]), body, caller, self._around(now_ms))

    def sync(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return self._classic.sync(self.existing(body["group_id"]), body, caller, self._around(now_ms))

    def classic_heartbeat(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return self._classic.heartbeat(self.existing(body["group_id"]), body, caller, now_ms)

    def leave(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return self._classic.leave(self.existing(body["group_id"]), body, caller, self._around(now_ms))

    # Everything else.

    def existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
        return group

    def describe(self, group_id: str) -> Message:
        """The group's part of an answer to ConsumerGroupDescribe."""
        try:
            return describe_group(self.existing(group_id), self._topics, self._settings.group_consumer_assignors)
        except KafkaError as error:
            return {"group_id": group_id, **error_answer(error)}

    def replay(self, record: CoordinatorRecord) -> None:
        group_id = record.key["group_id"]
        group = self._groups.get(group_id)
        if record.value is None:
            if not isinstance(group, ConsumerGroup):
                return
            group.replay(record)
            if record.type is RecordType.CONSUMER_GROUP_METADATA:
                del self._groups[group_id]
            return
        if not isinstance(group, ConsumerGroup):
            # A classic group without members leaves no tombstone if it was never written.
            group = self._groups[group_id] = ConsumerGroup(group_id)
        group.replay(record)

    def loaded(self, now_ms: int) -> None:
        """The log was replayed: sessions begin, and topics may have changed while nobody looked."""
        for group in self._all():
            self._sessions.begin(group, now_ms)
        self.topics_changed()

    def topics_changed(self) -> None:
        """The groups follow one after the other, a bounded part of them in each `expire`."""
        self._must_look = True
        for group in self._all():
            if group.members:
                self._unfollowed.setdefault(group.group_id)

    def _follow(self, now_ms: int) -> Effects:
        effects = no_effects()
        if self._unfollowed and self._must_look:
            self._must_look = False
            self._resolutions.look(self._topics.names())
        around, allowance = self._around(now_ms), Allowance()
        while self._unfollowed and not allowance.is_used_up:
            group_id = next(iter(self._unfollowed))
            del self._unfollowed[group_id]
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup) and group.members:
                if not all(self._is_resolved(group_id, regex, allowance) for regex in group.used_regexes()):
                    self._unfollowed[group_id] = None  # behind the others, which may have less to do
                    break
                allowance.use(GROUP_WORK + len(group.topics))
                draft = Draft(group)
                follow_topics(draft, around)
                effects.records.extend(draft.records)
        return effects

    def _is_resolved(self, group_id: str, regex: str, allowance: Allowance) -> bool:
        """Or given up, which is told once, here and to every member that uses it."""
        try:
            return self._resolutions.resolve(regex, allowance)
        except InvalidRegularExpression as error:
            logger.error("group %r does not follow the topics any more, its members are refused: %s", group_id, error)
            return True

    def _used_regexes(self) -> set[str]:
        return {regex for group in self._all() for regex in group.used_regexes()}

    def next_deadline_ms(self) -> int | None:
        return 0 if self._unfollowed else self._sessions.next_ms()

    def expire(self, now_ms: int) -> Effects:
        """Members that were silent for too long are fenced, those of one group together. Groups follow the topics."""
        fenced: dict[str, dict[str, Member]] = {}
        for due in self._sessions.due(now_ms):
            group = self._groups.get(due.group_id)
            member = group.members.get(due.member_id) if isinstance(group, ConsumerGroup) else None
            if member is not None and _is_late(member, due):
                fenced.setdefault(due.group_id, {})[due.member_id] = member
                self._sessions.try_again(due, now_ms)
        effects = self._follow(now_ms)
        for group_id, members in fenced.items():
            group = self.existing(group_id)
            effects.records.extend(fence(group, members.values(), self._groups, self._sessions, self._around(now_ms)))
        return effects

    def _around(self, now_ms: int) -> Surroundings:
        return Surroundings(self._settings, self._topics, now_ms, self._resolutions)

    def _all(self) -> list[ConsumerGroup]:
        return [group for group in self._groups.values() if isinstance(group, ConsumerGroup)]


def _assignment(member: Member) -> Message:
    topics = member.assigned.items()
    return {"topic_partitions": [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in topics]}


def _is_late(member: Member, due: Due) -> bool:
    return due.clock is not Clock.REBALANCE or member.state is MemberState.UNREVOKED_PARTITIONS


def _updated(known: Member, body: Message, caller: Caller) -> Member:
    """What a request leaves out stays as it was: the very same member, if it says nothing new."""
    names, regex = body["subscribed_topic_names"], body.get("subscribed_topic_regex")
    timeout_ms = body["rebalance_timeout_ms"]
    is_same_client = (caller.client_id, caller.client_host, None) == (known.client_id, known.client_host, known.classic)
    if is_same_client and names is regex is body["rack_id"] is body["server_assignor"] is None and timeout_ms == -1:
        return known
    updated = replace(
        known,
        instance_id=known.instance_id if body["instance_id"] is None else body["instance_id"],
        rack_id=known.rack_id if body["rack_id"] is None else body["rack_id"],
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=known.server_assignor if body["server_assignor"] is None else body["server_assignor"],
        topics=known.topics if names is None else frozenset(names),
        topic_regex=known.topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
    return known if updated == known else updated


def _identify_static(draft: Draft, member_id: str, body: Message, owned: Partitions | None) -> Member:
    group, instance_id = draft.group, body["instance_id"]
    if body["member_epoch"] != JOINING_EPOCH:
        member = static_member(group, instance_id)
        check_is_current(member, member_id)
        _check_epoch(member, body["member_epoch"], owned)
        return member
    holder = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or Member(member_id)
    if holder.member_id == member_id and holder.epoch != STATIC_LEAVING_EPOCH:
        # The same process joins again, as if the answer to its first join was lost.
        return holder
    if holder.classic is None and holder.epoch != STATIC_LEAVING_EPOCH:
        raise UnreleasedInstanceId(
            f"member {member_id!r} cannot join as instance {instance_id!r}: member {holder.member_id!r} has not left"
        )
    return replace_static(draft, holder, member_id)


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    if epoch == member.epoch:
        return
    is_behind = epoch == member.previous_epoch and epoch < member.epoch
    if is_behind and owned is not None and holds_all(member.assigned, owned):
        # The answer with the new epoch may have been lost. What the member has, it still may have.
        return
    raise FencedMemberEpoch(
        f"member {member.member_id!r} is in epoch {member.epoch}, the heartbeat is of {epoch}; "
        "it must give up its partitions and rejoin"
    )
