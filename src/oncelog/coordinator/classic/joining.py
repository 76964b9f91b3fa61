"""JoinGroup v0-9: who may join a classic group, as whom, and whether that begins a round.

v0 has one timeout for both purposes; from v4 a dynamic member first gets an id and comes back with it (what it got
lost on the way must not leave a nameless member behind); v5 brings static members; v9 tells a static leader that comes
back that it need not assign. Never ends a round: that is `rounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oncelog.coordinator.classic.group import ClassicGroup, State
from oncelog.coordinator.classic.member import Member, protocols_of, size_of
from oncelog.coordinator.classic.replies import join_failed, joined, sync_failed
from oncelog.coordinator.classic.rounds import NEW_MEMBER_JOIN_TIMEOUT_MS, Rounds
from oncelog.coordinator.effects import Caller, Effects, GroupSettings
from oncelog.coordinator.groups import UNKNOWN_MEMBER, GroupMap
from oncelog.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.codec import Message
from oncelog.wire.primitives import MAX_STRING_BYTES

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_MEMBER_ID_REQUIRED = 4
FIRST_WITH_SKIPPED_ASSIGNMENT = 9

MAX_PENDING_MEMBERS = 10_000
"""Ids that one group may have handed out to members that have not come back yet."""

MAX_PROTOCOLS = 100
"""Assignors that a member may name; Kafka's consumers name two."""

MAX_MEMBER_BYTES = 512 << 10
"""Of what a member says for all its assignors, such as the topics it reads: one record tells of the whole group, and
has at most `max.message.bytes`."""

MAX_NAME_BYTES = MAX_STRING_BYTES - 64
"""Of names that clients choose. What a record cannot hold must not enter a group, and an id is a name and a UUID."""


class Joining:
    def __init__(self, settings: GroupSettings, groups: GroupMap, rounds: Rounds, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._groups = groups
        self._rounds = rounds
        self._new_id = new_id

    def join(self, request: Message, caller: Caller, now_ms: int, out: Effects) -> None:
        member_id = request["member_id"]
        try:
            self._check_request(request)
            group = self._group_for(request)
            self._check_room(group, member_id)
            self._check_bytes(group, request)
        except GroupMaxSizeReached as error:
            out.replies.append(join_failed(caller, UNKNOWN_MEMBER, error.code))
            return
        except KafkaError as error:
            out.replies.append(join_failed(caller, member_id, error.code))
            return
        if caller.version < FIRST_WITH_REBALANCE_TIMEOUT:
            request = {**request, "rebalance_timeout_ms": request["session_timeout_ms"]}
        if member_id == UNKNOWN_MEMBER:
            self._join_as_new(group, request, caller, now_ms, out)
        elif member_id in group.pending_members and request["group_instance_id"] is None:
            self._add(group, member_id, request, caller, now_ms, out)
        else:
            self._join_again(group, request, caller, now_ms, out)
        self._groups.resized(group.group_id, group.size_bytes)

    def _check_bytes(self, group: ClassicGroup, request: Message) -> None:
        member = group.members.get(request["member_id"])
        held = 0 if member is None else size_of(member.protocols)
        self._groups.room.check(sum(len(protocol["metadata"]) for protocol in request["protocols"]) - held)

    def _check_request(self, request: Message) -> None:
        if not request["group_id"] or len(request["group_id"].encode()) > MAX_NAME_BYTES:
            raise InvalidGroupId("a group that is joined has a name that is neither empty nor endless")
        settings = self._settings
        timeout_ms = request["session_timeout_ms"]
        if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            raise InvalidSessionTimeout(
                f"session.timeout.ms is {timeout_ms}; the broker allows {settings.group_min_session_timeout_ms} "
                f"(group.min.session.timeout.ms) to {settings.group_max_session_timeout_ms} "
                "(group.max.session.timeout.ms)"
            )
        check_protocols(request["protocols"])
        names = [request["protocol_type"], request["group_instance_id"] or "", request["member_id"]]
        names += [protocol["name"] for protocol in request["protocols"]]
        if any(len(name.encode()) > MAX_NAME_BYTES for name in names):
            raise InvalidRequest(f"a name of more than {MAX_NAME_BYTES} bytes")

    def _group_for(self, request: Message) -> ClassicGroup:
        """A group begins with its first member. Whoever claims an id was in a group before, and that is gone."""
        group = self._groups.get(request["group_id"])
        if not isinstance(group, ClassicGroup):
            if request["member_id"] != UNKNOWN_MEMBER:
                raise UnknownMemberId(f"there is no group {request['group_id']!r}; join it without a member id")
            group = ClassicGroup(request["group_id"])
        if not group.supports(request["protocol_type"], [protocol["name"] for protocol in request["protocols"]]):
            raise InconsistentGroupProtocol(
                f"group {group.group_id!r} is of type {group.kind!r}, and this one shares no assignor with all members"
            )
        return group

    def _check_room(self, group: ClassicGroup, member_id: str) -> None:
        """Members of a round under way count when they have joined it, so that after a lowering of the limit those
        who come last have to go."""
        limit = self._settings.group_max_size
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            has_room = (member is not None and member.joining is not None) or group.joining_count < limit
        else:
            has_room = member is not None or len(group.members) < limit or group.state is State.EMPTY
        if not has_room:
            group.remove(member_id)
            self._groups.resized(group.group_id, group.size_bytes)
            raise GroupMaxSizeReached(f"group {group.group_id!r} has {limit} members, as many as group.max.size allows")

    # New members

    def _join_as_new(self, group: ClassicGroup, request: Message, caller: Caller, now_ms: int, out: Effects) -> None:
        self._groups[group.group_id] = group
        instance_id = request["group_instance_id"]
        prefix = caller.client_id if instance_id is None else instance_id
        member_id = f"{prefix.encode()[:MAX_NAME_BYTES].decode(errors='ignore')}-{self._new_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, member_id, request, caller, now_ms, out)
        elif instance_id is None and caller.version >= FIRST_WITH_MEMBER_ID_REQUIRED:
            self._hand_out_id(group, member_id, request, caller, now_ms, out)
        else:
            self._add(group, member_id, request, caller, now_ms, out)

    def _hand_out_id(
        self, group: ClassicGroup, member_id: str, request: Message, caller: Caller, now_ms: int, out: Effects
    ) -> None:
        if len(group.pending_members) >= MAX_PENDING_MEMBERS:
            out.replies.append(join_failed(caller, UNKNOWN_MEMBER, GroupMaxSizeReached.code))
            return
        group.pending_members.add(member_id)
        self._rounds.begin_session(group, member_id, request["session_timeout_ms"], now_ms)
        out.replies.append(join_failed(caller, member_id, MemberIdRequired.code))

    def _add(
        self, group: ClassicGroup, member_id: str, request: Message, caller: Caller, now_ms: int, out: Effects
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request["group_instance_id"],
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=request["rebalance_timeout_ms"],
            session_timeout_ms=request["session_timeout_ms"],
            protocols=protocols_of(request),
            is_new=True,
            joining=caller,
        )
        group.has_newcomers = group.is_first_round and group.state is State.PREPARING_REBALANCE
        group.add(member, request["protocol_type"])
        if caller.version < FIRST_WITH_MEMBER_ID_REQUIRED and member.instance_id is None:
            self._rounds.note_nameless(group, member_id)
        self._rounds.begin_session(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now_ms)
        self._rounds.rebalance(group, now_ms, out)

    # Members that the group knows

    def _join_again(self, group: ClassicGroup, request: Message, caller: Caller, now_ms: int, out: Effects) -> None:
        try:
            group.check_member(request["member_id"], request["group_instance_id"])
        except KafkaError as error:
            out.replies.append(join_failed(caller, request["member_id"], error.code))
            return
        member = group.members[request["member_id"]]
        is_same = member.protocols == protocols_of(request)
        if group.state is State.COMPLETING_REBALANCE and is_same:
            # The answer that told it of this generation may have been lost.
            out.replies.append(self._rounds.joined(group, member, caller))
        elif group.state is State.STABLE and is_same and group.leader_id != member.member_id:
            out.replies.append(self._rounds.joined(group, member, caller))
        else:
            # Also a leader with nothing new: it has seen what changes the assignment, a topic that grew for example.
            self._update(group, member, request, caller, out)
            self._rounds.rebalance(group, now_ms, out)

    def _update(self, group: ClassicGroup, member: Member, request: Message, caller: Caller, out: Effects) -> None:
        group.update_protocols(member, protocols_of(request))
        member.rebalance_timeout_ms = request["rebalance_timeout_ms"]
        member.session_timeout_ms = request["session_timeout_ms"]
        if (before := group.end_join(member)) is not None:
            out.replies.append(join_failed(before, member.member_id, RebalanceInProgress.code))
        group.await_join(member, caller)

    # Static members that come back as somebody else

    def _replace_static(
        self, group: ClassicGroup, member_id: str, request: Message, caller: Caller, now_ms: int, out: Effects
    ) -> None:
        """The process that held the instance is fenced. A stable group whose protocol stays needs no round for it."""
        old = group.members[group.static_members[request["group_instance_id"]]]
        if group.state is State.STABLE and self._keeps_protocol(group, old, request):
            self._replace_in_log(group, old, member_id, request, caller, out)
            return
        self._fence(group, old, out)
        was_leader = group.leader_id == old.member_id
        group.remove(old.member_id)
        self._rounds.end_session(group, old.member_id)
        member = self._successor(old, member_id, request, caller)
        member.joining = caller
        group.add(member, request["protocol_type"])
        if was_leader:
            group.leader_id = member_id
        self._rounds.renew_session(group, member, now_ms)
        self._rounds.rebalance(group, now_ms, out)

    def _replace_in_log(
        self, group: ClassicGroup, old: Member, member_id: str, request: Message, caller: Caller, out: Effects
    ) -> None:
        """The same generation with another member id: nothing changes before that is durable."""
        successor = self._successor(old, member_id, request, caller)
        members = [successor if member is old else member for member in group.members.values()]
        is_leader = group.leader_id == old.member_id
        leader_id = member_id if is_leader else group.leader_id
        assert leader_id is not None
        assignments = {member.member_id: member.assignment for member in members}
        out.records.append(group.record(members, assignments, leader_id=leader_id))
        skips = is_leader and caller.version >= FIRST_WITH_SKIPPED_ASSIGNMENT
        reply = joined(
            caller,
            member_id,
            generation=group.generation,
            protocol_type=group.kind,
            protocol=group.protocol,
            # An older client would assign anew if it heard that it leads: it is told of a leader that is gone.
            leader=old.member_id if is_leader and not skips else leader_id,
            members=[member.for_leader(group.protocol) for member in members] if skips else (),
            skip_assignment=skips,
        )
        out.replies.append(reply)

    def _keeps_protocol(self, group: ClassicGroup, old: Member, request: Message) -> bool:
        previous = old.protocols
        group.update_protocols(old, protocols_of(request))
        selected = group.select_protocol()
        group.update_protocols(old, previous)
        return selected == group.protocol

    def _successor(self, old: Member, member_id: str, request: Message, caller: Caller) -> Member:
        return Member(
            member_id=member_id,
            instance_id=old.instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=request["rebalance_timeout_ms"],
            session_timeout_ms=request["session_timeout_ms"],
            protocols=protocols_of(request),
            assignment=old.assignment,
        )

    def _fence(self, group: ClassicGroup, old: Member, out: Effects) -> None:
        if (caller := group.end_join(old)) is not None:
            out.replies.append(join_failed(caller, old.member_id, FencedInstanceId.code))
        if old.syncing is not None:
            out.replies.append(sync_failed(old.syncing, FencedInstanceId.code))
        old.syncing = None


def check_protocols(protocols: Sequence[Message]) -> None:
    """What a member of the classic protocol may say, in a group of either kind. Raises InvalidRequest."""
    if len(protocols) > MAX_PROTOCOLS:
        raise InvalidRequest(f"{len(protocols)} assignors; at most {MAX_PROTOCOLS} can be named")
    if sum(len(protocol["metadata"]) for protocol in protocols) > MAX_MEMBER_BYTES:
        raise InvalidRequest(f"more than {MAX_MEMBER_BYTES} bytes of metadata: subscribe to fewer topics")
