"""The APIs of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and the replay of their records.

SyncGroup v0-5 (v3 static members, v5 names the protocol), Heartbeat v0-4 (v3 static members), LeaveGroup v0-5 (v3
several members at once, by id or by instance). JoinGroup is in `joining`, rebalances are in `rounds`.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.coordinator.classic.group import ClassicGroup, State
from oncelog.coordinator.classic.joining import Joining
from oncelog.coordinator.classic.replies import (
    FIRST_LEAVE_WITH_MEMBERS,
    heartbeat,
    leave_failed,
    left,
    sync_failed,
    synced,
)
from oncelog.coordinator.classic.rounds import Rounds
from oncelog.coordinator.effects import Caller, Effects, GroupSettings, no_effects
from oncelog.coordinator.groups import UNKNOWN_MEMBER, GroupMap
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.errors import (
    NONE,
    InconsistentGroupProtocol,
    InvalidGroupId,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from oncelog.wire.codec import Message

FIRST_SYNC_WITH_PROTOCOL = 5


MAX_GROUP_BYTES = 900_000
"""Of what all members of a group say and are assigned: its record must fit a batch of the smallest `max.message.bytes`
that is usual. Beyond it Kafka answers the leader so as well."""


class ClassicGroups:
    def __init__(self, settings: GroupSettings, groups: GroupMap, new_id: Callable[[], str]) -> None:
        self._groups = groups
        self._rounds = Rounds(settings, groups)
        self._joining = Joining(settings, groups, self._rounds, new_id)
        self._is_live = False

    # Requests

    def join(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        out = no_effects()
        self._joining.join(request, caller, now_ms, out)
        return out

    def sync(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        out = no_effects()
        try:
            self._check_sync_request(request, caller)
            group = self._group_of(request)
            self._check_sync(group, request)
            _check_fits(group, request)
            if request["member_id"] == group.leader_id:
                self._groups.room.check(sum(len(part["assignment"]) for part in request["assignments"]))
        except KafkaError as error:
            out.replies.append(sync_failed(caller, error.code))
            return out
        member = group.members[request["member_id"]]
        self._rounds.synced(group, member.member_id)
        if group.state is State.STABLE:
            self._rounds.renew_session(group, member, now_ms)
            out.replies.append(synced(caller, group.kind, group.protocol, member.assignment))
            return out
        if member.syncing is not None:
            out.replies.append(sync_failed(member.syncing, RebalanceInProgress.code))
        member.syncing = caller
        if member.member_id == group.leader_id:
            self._assign(group, request, now_ms, out)
        return out

    def heartbeat(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            group = self._group_of(request)
            group.check_member(request["member_id"], request["group_instance_id"])
            group.check_generation(request["generation_id"])
        except KafkaError as error:
            return Effects([], [heartbeat(caller, error.code)])
        self._rounds.renew_session(group, group.members[request["member_id"]], now_ms)
        is_joining = group.state is State.PREPARING_REBALANCE
        return Effects([], [heartbeat(caller, RebalanceInProgress.code if is_joining else NONE)])

    def leave(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        out = no_effects()
        members = request["members"]
        if caller.version < FIRST_LEAVE_WITH_MEMBERS:
            members = [{"member_id": request["member_id"], "group_instance_id": None}]
        if not request["group_id"]:
            out.replies.append(leave_failed(caller, InvalidGroupId.code))
            return out
        group = self._groups.get(request["group_id"])
        parts = []
        leaving: list[str] = []
        for member in members:
            identity = {name: member[name] for name in ("member_id", "group_instance_id")}
            try:
                if not isinstance(group, ClassicGroup):
                    raise UnknownMemberId(f"there is no group {request['group_id']!r}")
                leaving.append(self._leaver(group, **identity))
                parts.append({**identity, "error_code": NONE})
            except KafkaError as error:
                parts.append({**identity, "error_code": error.code})
        out.replies.append(left(caller, parts))
        if isinstance(group, ClassicGroup):
            self._dismiss(group, leaving, now_ms, out)
        return out

    def offsets_committed(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A member that commits offsets lives."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._rounds.renew_session(group, member, now_ms)

    # The log

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        group_id = record.key["group"]
        group = self._groups.get(group_id)
        if record.value is None:
            if isinstance(group, ClassicGroup):
                group.transition_to(State.DEAD, timestamp_ms)
                self._rounds.stop(group)
                del self._groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self._groups[group_id] = ClassicGroup(group_id)
        before = set(group.members)
        group.adopt(record.value, is_live=self._is_live)
        self._groups.resized(group_id, group.size_bytes)
        if self._is_live:
            for member_id in group.members.keys() - before:
                self._rounds.renew_session(group, group.members[member_id], timestamp_ms)

    def loaded(self, now_ms: int) -> None:
        self._is_live = True
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rounds.renew_session(group, member, now_ms)

    # Time

    def expire(self, now_ms: int) -> Effects:
        out = no_effects()
        self._rounds.expire(now_ms, out)
        for group_id in self._groups.rebalance_wanted:
            group = self._groups.get(group_id)
            if isinstance(group, ClassicGroup) and group.state is State.STABLE:
                self._rounds.rebalance(group, now_ms, out)
        self._groups.rebalance_wanted.clear()
        return out

    def next_deadline_ms(self) -> int | None:
        return 0 if self._groups.rebalance_wanted else self._rounds.timers.next_ms()

    def forget(self, ticket: object) -> None:
        self._rounds.forget(ticket)

    # Parts

    def _group_of(self, request: Message) -> ClassicGroup:
        if not request["group_id"]:
            raise InvalidGroupId("a group that is joined has a name")
        group = self._groups.get(request["group_id"])
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId(f"there is no group {request['group_id']!r}; join it anew")
        return group

    def _check_sync_request(self, request: Message, caller: Caller) -> None:
        if caller.version >= FIRST_SYNC_WITH_PROTOCOL and None in (request["protocol_type"], request["protocol_name"]):
            raise InconsistentGroupProtocol("from version 5 a sync names protocol type and protocol")

    def _check_sync(self, group: ClassicGroup, request: Message) -> None:
        group.check_member(request["member_id"], request["group_instance_id"])
        group.check_generation(request["generation_id"])
        for asked, known in ((request["protocol_type"], group.kind), (request["protocol_name"], group.protocol)):
            if None not in (asked, known) and asked != known:
                raise InconsistentGroupProtocol(f"generation {group.generation} uses {known!r}, not {asked!r}")
        if group.state is State.PREPARING_REBALANCE:
            raise RebalanceInProgress("another round has begun; join it")

    def _assign(self, group: ClassicGroup, request: Message, now_ms: int, out: Effects) -> None:
        """The leader has spoken. Its word is in the log before anybody hears it; the group is stable by the replay."""
        given = {part["member_id"]: bytes(part["assignment"]) for part in request["assignments"]}
        out.records.append(group.record(group.members.values(), given))
        for member in group.members.values():
            if member.syncing is not None:
                assignment = given.get(member.member_id, b"")
                out.replies.append(synced(member.syncing, group.kind, group.protocol, assignment))
                member.syncing = None
                self._rounds.renew_session(group, member, now_ms)

    def _leaver(self, group: ClassicGroup, member_id: str, group_instance_id: str | None) -> str:
        """Whom a leave means. An administrator names an instance alone."""
        if member_id == UNKNOWN_MEMBER and group_instance_id is not None:
            member_id = group.static_members.get(group_instance_id, UNKNOWN_MEMBER)
        if member_id not in group.pending_members:
            group.check_member(member_id, group_instance_id)
        return member_id

    def _dismiss(self, group: ClassicGroup, leaving: list[str], now_ms: int, out: Effects) -> None:
        had_members = any(member_id in group.members for member_id in leaving)
        for member_id in leaving:
            self._rounds.remove(group, member_id, out)
        if had_members:
            self._rounds.rebalance(group, now_ms, out)
        else:
            self._rounds.end_if_complete(group, now_ms, out)


def _check_fits(group: ClassicGroup, request: Message) -> None:
    """Before anything changes: what the leader assigns must be written."""
    if request["member_id"] != group.leader_id or group.state is State.STABLE:
        return
    size_bytes = sum(len(member.metadata(group.protocol)) for member in group.members.values())
    size_bytes += sum(len(assignment["assignment"]) for assignment in request["assignments"])
    if size_bytes > MAX_GROUP_BYTES:
        raise UnknownServerError(f"group {group.group_id!r} needs {size_bytes} bytes; at most {MAX_GROUP_BYTES} fit")
