"""Members of the classic protocol in a consumer group: JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13).

They see a classic group whose generation is their member epoch and which has no leader among them: the coordinator
assigns. A heartbeat tells them to join again whenever there is a step to take. Everything is answered at once; nobody
waits for others. Owns these requests; the group decides as it does for every other member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oncelog.coordinator.classic.joining import FIRST_WITH_MEMBER_ID_REQUIRED, MAX_NAME_BYTES, check_protocols
from oncelog.coordinator.classic.replies import (
    FIRST_LEAVE_WITH_MEMBERS,
    heartbeat,
    join_failed,
    joined,
    left,
    sync_failed,
    synced,
)
from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.embedded import Subscription, read_subscription, with_ids, write_assignment
from oncelog.coordinator.consumer.fencing import fence
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.identity import check_is_current, check_room, identified, static_member
from oncelog.coordinator.consumer.member import ClassicPart, ClassicProtocol, Member, MemberState
from oncelog.coordinator.consumer.membership import Surroundings, admit, replace_static
from oncelog.coordinator.consumer.migration import downgrade, may_downgrade
from oncelog.coordinator.consumer.sessions import Clock, Sessions
from oncelog.coordinator.effects import Caller, Effects, GroupSettings
from oncelog.coordinator.groups import CONSUMER_PROTOCOL_TYPE, UNKNOWN_MEMBER, GroupMap
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.codec import Message


class ClassicMembers:
    def __init__(self, groups: GroupMap, sessions: Sessions, new_id: Callable[[], str]) -> None:
        self._groups = groups
        self._sessions = sessions
        self._new_id = new_id

    def join(self, group: ConsumerGroup, body: Message, caller: Caller, around: Surroundings) -> Effects:
        member_id = body["member_id"] or self._new_id()
        try:
            _check_request(body, around.settings)
            check_room(group, member_id, around.settings)
            _check_protocols(group, body)
            if body["member_id"] == UNKNOWN_MEMBER and _needs_an_id(body, caller):
                return Effects([], [join_failed(caller, member_id, MemberIdRequired.code)])
            return self._join(Draft(group), member_id, body, caller, around)
        except KafkaError as error:
            return Effects([], [join_failed(caller, body["member_id"], error.code)])

    def _join(self, draft: Draft, member_id: str, body: Message, caller: Caller, around: Surroundings) -> Effects:
        holder = _instance_holder(draft.group, body)
        member = _identify(draft, member_id, body)
        subscription = read_subscription(bytes(body["protocols"][0]["metadata"]))
        epoch_before = draft.group.group_epoch
        updated = _updated(member, subscription, body, caller)
        moved = admit(draft, updated, with_ids(subscription.owned, around.topics), around)
        group_id = draft.group.group_id
        if (
            holder is not None
            and holder.classic is None
            and may_downgrade(draft.group.members.values(), around.settings)
        ):
            draft.records.extend(self._downgrade(draft.group, moved, epoch_before, around))
        else:
            self._sessions.stop(group_id, moved.member_id, Clock.JOIN)
            self._sessions.alive(group_id, moved, around.now_ms)
            self._sessions.start(group_id, moved, Clock.SYNC, around.now_ms)
        protocol = body["protocols"][0]["name"]
        reply = joined(
            caller,
            moved.member_id,
            generation=moved.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=protocol,
            leader="",
        )
        return Effects(draft.records, [reply])

    def _downgrade(
        self, group: ConsumerGroup, joined: Member, epoch_before: int, around: Surroundings
    ) -> list[CoordinatorRecord]:
        """The last member of the new protocol was replaced. Where everybody had arrived at the target, all go on."""
        members = [joined if member.member_id == joined.member_id else member for member in group.members.values()]
        if group.group_epoch != epoch_before or not all(member.reached(group.group_epoch) for member in members):
            self._groups.rebalance_wanted.add(group.group_id)
        self._sessions.end(group)
        return downgrade(group, members, around)

    def sync(self, group: ConsumerGroup, body: Message, caller: Caller, around: Surroundings) -> Effects:
        try:
            member, classic = _classic_member(group, body)
            _check_protocol(classic, body)
            if group.group_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._sessions.start_once(group.group_id, member, Clock.JOIN, around.now_ms)
                raise RebalanceInProgress(f"group {group.group_id!r} has changed; join again")
        except KafkaError as error:
            return Effects([], [sync_failed(caller, error.code)])
        self._sessions.stop(group.group_id, member.member_id, Clock.SYNC)
        self._sessions.alive(group.group_id, member, around.now_ms)
        assignment = write_assignment(member.assigned, around.topics, classic.protocols[0].metadata)
        return Effects([], [synced(caller, body["protocol_type"], body["protocol_name"], assignment)])

    def heartbeat(self, group: ConsumerGroup, body: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            member, _ = _classic_member(group, body)
        except KafkaError as error:
            return Effects([], [heartbeat(caller, error.code)])
        self._sessions.alive(group.group_id, member, now_ms)
        if not _has_a_step_to_take(group, member):
            return Effects([], [heartbeat(caller, 0)])
        self._sessions.start_once(group.group_id, member, Clock.JOIN, now_ms)
        return Effects([], [heartbeat(caller, RebalanceInProgress.code)])

    def leave(self, group: ConsumerGroup, body: Message, caller: Caller, around: Surroundings) -> Effects:
        leaving: dict[str, Member] = {}
        answers = []
        for identity in _leaving_identities(body, caller):
            error_code = 0
            try:
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                error_code = error.code
            answers.append({**identity, "error_code": error_code})
        records = self._remove(group, list(leaving.values()), around)
        return Effects(records, [left(caller, answers)])

    def _remove(self, group: ConsumerGroup, members: list[Member], around: Surroundings) -> list[CoordinatorRecord]:
        for member in members:
            self._sessions.gone(group.group_id, member.member_id)
        return fence(group, members, self._groups, self._sessions, around)


def _needs_an_id(body: Message, caller: Caller) -> bool:
    return body["group_instance_id"] is None and caller.version >= FIRST_WITH_MEMBER_ID_REQUIRED


def _check_request(body: Message, settings: GroupSettings) -> None:
    timeout_ms = body["session_timeout_ms"]
    if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
        raise InvalidSessionTimeout(f"session.timeout.ms is {timeout_ms}, which the broker does not allow")
    check_protocols(body["protocols"])
    names = [body["member_id"], body["group_instance_id"] or "", *(protocol["name"] for protocol in body["protocols"])]
    if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        raise InvalidRequest(f"a name has more than {MAX_NAME_BYTES} bytes")


def _check_protocols(group: ConsumerGroup, body: Message) -> None:
    names = {protocol["name"] for protocol in body["protocols"]}
    common = [
        {protocol.name for protocol in member.classic.protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    if body["protocol_type"] != CONSUMER_PROTOCOL_TYPE or not names.intersection(*common):
        raise InconsistentGroupProtocol(f"group {group.group_id!r} has no member with protocols {sorted(names)}")


def _instance_holder(group: ConsumerGroup, body: Message) -> Member | None:
    return None if body["group_instance_id"] is None else group.static_member(body["group_instance_id"])


def _identify(draft: Draft, member_id: str, body: Message) -> Member:
    """A member id that was handed out before is not in the log until its owner joins with it."""
    group, instance_id = draft.group, body["group_instance_id"]
    if instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    if body["member_id"] != UNKNOWN_MEMBER:
        member = static_member(group, instance_id)
        check_is_current(member, member_id)
        return member
    holder = group.static_member(instance_id)
    return Member(member_id) if holder is None else replace_static(draft, holder, member_id)


def _updated(member: Member, subscription: Subscription, body: Message, caller: Caller) -> Member:
    timeout_ms = body["rebalance_timeout_ms"]
    protocols = (ClassicProtocol(protocol["name"], bytes(protocol["metadata"])) for protocol in body["protocols"])
    return replace(
        member,
        instance_id=member.instance_id if body["group_instance_id"] is None else body["group_instance_id"],
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        # Version 0 has one timeout for both.
        rebalance_timeout_ms=body["session_timeout_ms"] if timeout_ms == -1 else timeout_ms,
        topics=subscription.topics,
        topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicPart(body["session_timeout_ms"], tuple(protocols)),
    )


def _classic_member(group: ConsumerGroup, body: Message) -> tuple[Member, ClassicPart]:
    member = identified(group, body["member_id"], body["group_instance_id"])
    if member.classic is None:
        raise UnknownMemberId(f"member {member.member_id!r} does not use the classic protocol")
    if body["generation_id"] != member.epoch:
        raise IllegalGeneration(f"member {member.member_id!r} is in {member.epoch}, not in {body['generation_id']}")
    return member, member.classic


def _check_protocol(classic: ClassicPart, body: Message) -> None:
    kind, name = body["protocol_type"], body["protocol_name"]
    if kind not in (None, CONSUMER_PROTOCOL_TYPE) or name not in (None, classic.protocols[0].name):
        raise InconsistentGroupProtocol(f"protocol {kind!r} {name!r} is not the one of the answer to JoinGroup")


def _has_a_step_to_take(group: ConsumerGroup, member: Member) -> bool:
    if member.epoch < group.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    return any(
        group.owner_of(topic_id, partition) not in (None, member.member_id)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _leaving_identities(body: Message, caller: Caller) -> list[Message]:
    if caller.version >= FIRST_LEAVE_WITH_MEMBERS:
        return [
            {"member_id": member["member_id"], "group_instance_id": member["group_instance_id"]}
            for member in body["members"]
        ]
    return [{"member_id": body["member_id"], "group_instance_id": None}]


def _leaving_member(group: ConsumerGroup, identity: Message) -> Member:
    if identity["group_instance_id"] is None:
        return group.member(identity["member_id"])
    member = static_member(group, identity["group_instance_id"])
    if identity["member_id"] != UNKNOWN_MEMBER:
        # An administrator removes a static member by its instance alone.
        check_is_current(member, identity["member_id"])
    return member
