"""Rebalances of classic groups: how a round begins, how long it waits, how it ends.

Owns the deadlines (sessions, join rounds, syncs) and what happens when they come. A round ends in a generation that
its members are told of; nobody owns anything in it before the leader's assignment is in the log. Never reads a
request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.coordinator.classic.group import ClassicGroup, State
from oncelog.coordinator.classic.member import Member
from oncelog.coordinator.classic.replies import join_failed, joined, sync_failed
from oncelog.coordinator.classic.timers import Timers
from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply
from oncelog.coordinator.groups import UNKNOWN_MEMBER, GroupMap
from oncelog.errors import RebalanceInProgress, UnknownMemberId

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a first join may wait. Whoever sent it may be gone, and does not know yet under which id to come back."""


class Timer(IntEnum):
    """Integers, whose hash costs nothing: every heartbeat and every offset commit looks one up."""

    SESSION = 0
    JOIN = 1
    SYNC = 2


class TimerKey(NamedTuple):
    group_id: str
    timer: Timer
    member_id: str = ""


class Rounds:
    def __init__(self, settings: GroupSettings, groups: GroupMap) -> None:
        self._settings = settings
        self._groups = groups
        self.timers: Timers[TimerKey] = Timers()
        self._delay_left_ms: dict[str, int] = {}
        """How much longer the first round of a group may be delayed."""
        self._nameless: dict[str, set[str]] = {}
        """By their group, those who wait for their first answer and were given no id before."""

    # Sessions

    def begin_session(self, group: ClassicGroup, member_id: str, timeout_ms: int, now_ms: int) -> None:
        self.timers.set(TimerKey(group.group_id, Timer.SESSION, member_id), now_ms + timeout_ms)

    def renew_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        self.begin_session(group, member.member_id, member.session_timeout_ms, now_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(TimerKey(group.group_id, Timer.SESSION, member_id))

    # The beginning of a round

    def rebalance(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        """Begin a round, or end the one under way if nobody is missing any more."""
        if group.state is State.PREPARING_REBALANCE:
            self.end_if_complete(group, now_ms, out)
        else:
            self._begin(group, now_ms, out)

    def _begin(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        if group.state is State.COMPLETING_REBALANCE:
            self._cancel_syncs(group, now_ms, out)
        self.timers.cancel(TimerKey(group.group_id, Timer.SYNC))
        group.is_first_round = group.state is State.EMPTY
        group.has_newcomers = False
        group.transition_to(State.PREPARING_REBALANCE, now_ms)
        if group.is_first_round:
            self._delay(group, group.rebalance_timeout_ms, now_ms)
        elif group.has_all_joined:
            self._end(group, now_ms, out)
        else:
            self._await_joins(group, now_ms)

    def _cancel_syncs(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.syncing is not None:
                out.replies.append(sync_failed(member.syncing, RebalanceInProgress.code))
                member.syncing = None
                # Its session may have ended while it waited: without a new one, nobody would notice if it is gone.
                self.renew_session(group, member, now_ms)

    def _delay(self, group: ClassicGroup, left_ms: int, now_ms: int) -> None:
        """Give the first round time for members that start together, as long as they keep coming."""
        delay_ms = min(self._settings.group_initial_rebalance_delay_ms, left_ms)
        self._delay_left_ms[group.group_id] = left_ms - delay_ms
        self.timers.set(TimerKey(group.group_id, Timer.JOIN), now_ms + delay_ms)

    def _await_joins(self, group: ClassicGroup, now_ms: int) -> None:
        self.timers.set(TimerKey(group.group_id, Timer.JOIN), now_ms + group.rebalance_timeout_ms)

    # The end of a round

    def end_if_complete(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        """A first round takes its time, even if all who are known have joined."""
        if group.state is State.PREPARING_REBALANCE and not group.is_first_round and group.has_all_joined:
            self._end(group, now_ms, out)

    def _end(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        self.timers.cancel(TimerKey(group.group_id, Timer.JOIN))
        self._delay_left_ms.pop(group.group_id, None)
        self._drop_absent(group)
        if not group.members:
            self._end_empty(group, now_ms, out)
        elif group.elect_joined_leader():
            self._begin_generation(group, now_ms, out)
        else:
            # Only static members are left, and none is here. Their sessions decide what becomes of the group.
            self._await_joins(group, now_ms)

    def _drop_absent(self, group: ClassicGroup) -> None:
        """A static member may be restarting: it keeps its place until its session ends."""
        absent = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
        for member in absent:
            self.end_session(group, member.member_id)
            group.remove(member.member_id)
        self._groups.resized(group.group_id, group.size_bytes)

    def _end_empty(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        group.protocol = group.leader_id = None
        if group.image is None:
            # Nobody was ever told of this group, except those who are gone.
            group.transition_to(State.EMPTY, now_ms)
            group.kind = None
            return
        group.state_timestamp_ms = now_ms
        out.records.append(group.record((), {}, generation=group.generation + 1))

    def _begin_generation(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        group.generation += 1
        group.protocol = group.select_protocol()
        group.transition_to(State.COMPLETING_REBALANCE, now_ms)
        group.unsynced_members = set(group.members)
        for member in group.members.values():
            if (caller := group.end_join(member)) is not None:
                out.replies.append(self.joined(group, member, caller))
            member.is_new = False
            self.renew_session(group, member, now_ms)
        self._nameless.pop(group.group_id, None)
        self.timers.set(TimerKey(group.group_id, Timer.SYNC), now_ms + group.rebalance_timeout_ms)

    def joined(self, group: ClassicGroup, member: Member, caller: Caller) -> Reply:
        """The present generation; to its leader also who is in it."""
        assert group.leader_id is not None
        is_leader = group.leader_id == member.member_id
        members = [each.for_leader(group.protocol) for each in group.members.values()] if is_leader else ()
        return joined(
            caller,
            member.member_id,
            generation=group.generation,
            protocol_type=group.kind,
            protocol=group.protocol,
            leader=group.leader_id,
            members=members,
        )

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """This member has asked for its assignment; once all have, nobody has to be waited for."""
        group.unsynced_members.discard(member_id)
        if not group.unsynced_members:
            self.timers.cancel(TimerKey(group.group_id, Timer.SYNC))

    # Departures

    def remove(self, group: ClassicGroup, member_id: str, out: Effects) -> None:
        """Without a rebalance: whoever removes several begins one for all of them."""
        self.end_session(group, member_id)
        member = group.members.get(member_id)
        group.remove(member_id)
        self._is_named(group, member_id)
        if member is None:
            return
        self._groups.resized(group.group_id, group.size_bytes)
        if member.joining is not None:
            # It may be there still, and then joins anew.
            out.replies.append(join_failed(member.joining, UNKNOWN_MEMBER, UnknownMemberId.code))
        if member.syncing is not None:
            out.replies.append(sync_failed(member.syncing, UnknownMemberId.code))

    # Deadlines

    def stop(self, group: ClassicGroup) -> None:
        """The group is gone: what it waited for must not end a round of one that comes after it."""
        self.timers.cancel(TimerKey(group.group_id, Timer.JOIN))
        self.timers.cancel(TimerKey(group.group_id, Timer.SYNC))
        self._delay_left_ms.pop(group.group_id, None)
        self._nameless.pop(group.group_id, None)

    # Those who can be lost

    def note_nameless(self, group: ClassicGroup, member_id: str) -> None:
        """It does not know yet who it is: should its connection be lost, it can never come back as this member."""
        self._nameless.setdefault(group.group_id, set()).add(member_id)

    def _is_named(self, group: ClassicGroup, member_id: str) -> None:
        nameless = self._nameless.get(group.group_id)
        if nameless is not None:
            nameless.discard(member_id)
            if not nameless:
                del self._nameless[group.group_id]

    def forget(self, ticket: object) -> None:
        """Nobody reads the reply to it. Asked of every connection that ends while it waits: mostly there is nobody whom
        that concerns."""
        for group_id, member_ids in self._nameless.items():
            group = self._groups.get(group_id)
            if not isinstance(group, ClassicGroup):
                continue
            for member_id in member_ids:
                member = group.members.get(member_id)
                if member is not None and member.joining is not None and member.joining.ticket is ticket:
                    self.begin_session(group, member_id, 0, 0)

    def expire(self, now_ms: int, out: Effects) -> None:
        for key in self.timers.take_due(now_ms):
            group = self._groups.get(key.group_id)
            if not isinstance(group, ClassicGroup):
                continue
            if key.timer is Timer.SESSION:
                self._session_ended(group, key.member_id, now_ms, out)
            elif key.timer is Timer.JOIN:
                self._join_deadline(group, now_ms, out)
            else:
                self._sync_deadline(group, now_ms, out)

    def _session_ended(self, group: ClassicGroup, member_id: str, now_ms: int, out: Effects) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_waiting and not member.is_new:
            # It waits for us: its session begins anew when it is answered.
            return
        was_pending = member_id in group.pending_members
        self.remove(group, member_id, out)
        if member is not None:
            self.rebalance(group, now_ms, out)
        elif was_pending:
            self.end_if_complete(group, now_ms, out)

    def _join_deadline(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        left_ms = self._delay_left_ms.get(group.group_id, 0)
        if group.is_first_round and group.has_newcomers and left_ms > 0:
            group.has_newcomers = False
            self._delay(group, left_ms, now_ms)
        else:
            self._end(group, now_ms, out)

    def _sync_deadline(self, group: ClassicGroup, now_ms: int, out: Effects) -> None:
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.unsynced_members:
            return
        for member_id in list(group.unsynced_members):
            self.remove(group, member_id, out)
        self.rebalance(group, now_ms, out)
