"""The clocks of members: sessions, and the time that a member has for a step of a rebalance.

Soft state: it begins anew when the coordinator is loaded, and decides only who is fenced because it was silent.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from oncelog.coordinator.classic.timers import Timers
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.member import Member, MemberState
from oncelog.coordinator.effects import GroupSettings

FENCING_RETRY_MS = 1_000
"""A member whose fencing could not be written is due again after this time."""


class Clock(Enum):
    SESSION = "its session ended"
    REBALANCE = "it did not give up its partitions within the rebalance timeout"
    JOIN = "it did not join again within the rebalance timeout"
    SYNC = "it did not sync within the rebalance timeout"


class Due(NamedTuple):
    group_id: str
    member_id: str
    clock: Clock


class Sessions:
    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._timers: Timers[Due] = Timers()
        self._running: set[Due] = set()
        """The clocks that a second start does not move."""

    def session_timeout_ms(self, group_id: str, member: Member) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        override = self._settings.overrides(group_id).consumer_session_timeout_ms
        return self._settings.group_consumer_session_timeout_ms if override is None else override

    def heartbeat_interval_ms(self, group_id: str) -> int:
        override = self._settings.overrides(group_id).consumer_heartbeat_interval_ms
        return self._settings.group_consumer_heartbeat_interval_ms if override is None else override

    def alive(self, group_id: str, member: Member, now_ms: int) -> None:
        at_ms = now_ms + self.session_timeout_ms(group_id, member)
        self._timers.set(Due(group_id, member.member_id, Clock.SESSION), at_ms)

    def moved(self, group_id: str, member: Member, now_ms: int) -> None:
        """A member took a step: one that has to give up partitions has until the rebalance timeout to say so. Members
        of the classic protocol have clocks of their own for that."""
        if member.classic is not None:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.start(group_id, member, Clock.REBALANCE, now_ms)
        else:
            self.stop(group_id, member.member_id, Clock.REBALANCE)

    def start(self, group_id: str, member: Member, clock: Clock, now_ms: int) -> None:
        self._timers.set(Due(group_id, member.member_id, clock), now_ms + member.rebalance_timeout_ms)

    def start_once(self, group_id: str, member: Member, clock: Clock, now_ms: int) -> None:
        due = Due(group_id, member.member_id, clock)
        if due not in self._running:
            self._running.add(due)
            self.start(group_id, member, clock, now_ms)

    def stop(self, group_id: str, member_id: str, clock: Clock) -> None:
        due = Due(group_id, member_id, clock)
        self._running.discard(due)
        self._timers.cancel(due)

    def gone(self, group_id: str, member_id: str) -> None:
        for clock in Clock:
            self.stop(group_id, member_id, clock)

    def begin(self, group: ConsumerGroup, now_ms: int) -> None:
        """The coordinator of a group starts: everybody gets a full session."""
        for member in group.members.values():
            self.alive(group.group_id, member, now_ms)
            self.moved(group.group_id, member, now_ms)

    def end(self, group: ConsumerGroup) -> None:
        """The group is another one's now."""
        for member_id in group.members:
            self.gone(group.group_id, member_id)

    def next_ms(self) -> int | None:
        return self._timers.next_ms()

    def due(self, now_ms: int) -> list[Due]:
        due = self._timers.take_due(now_ms)
        self._running.difference_update(due)
        return due

    def try_again(self, due: Due, now_ms: int) -> None:
        """In case that the fencing is not written; once it is, nobody is found under the name."""
        self._timers.set(due, now_ms + FENCING_RETRY_MS)
