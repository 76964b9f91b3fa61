"""Large classic groups: a join, a heartbeat or a lost connection never looks at all members."""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from typing import Any

from oncelog.coordinator.classic.group import ClassicGroup
from oncelog.coordinator.classic.member import Member
from oncelog.coordinator.effects import GroupSettings
from tests.coordinator.support import Rig, Ticket, joined

SIZE = 300


class WatchedMembers(dict[str, Member]):
    """How often somebody walked through all of them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def values(self) -> ValuesView[Member]:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def watched(rig: Rig) -> WatchedMembers:
    group = rig.coordinator._groups["g"]
    assert isinstance(group, ClassicGroup)
    members = group.members = WatchedMembers(group.members)
    return members


def first_round() -> tuple[Rig, list[tuple[str, Ticket]]]:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    return rig, [rig.new_member() for _ in range(2)]


def test_joins_of_a_first_round_do_not_count_the_members() -> None:
    rig, members = first_round()
    known = watched(rig)
    members += [rig.new_member() for _ in range(SIZE)]
    assert known.walks == 0
    rig.pass_time(10_000)
    assert {joined(ticket)["generation_id"] for _, ticket in members} == {1}


def test_joins_of_a_later_round_do_not_count_the_members() -> None:
    rig = Rig()
    members = rig.stable_group(SIZE)
    _, newcomer = rig.new_member()  # begins the round
    known = watched(rig)
    tickets = [rig.join(member_id=member_id) for member_id in members[:-1]]
    assert known.walks == 0
    assert newcomer.answer is None
    tickets.append(rig.join(member_id=members[-1]))
    assert {joined(ticket)["generation_id"] for ticket in [*tickets, newcomer]} == {joined(newcomer)["generation_id"]}


def test_connections_that_are_lost_do_not_look_for_their_members() -> None:
    rig, members = first_round()
    members += [rig.new_member() for _ in range(SIZE)]
    known = watched(rig)
    for _, ticket in members:
        rig.coordinator.forget(ticket)
    assert known.walks == 0


def test_members_that_leave_one_by_one_are_not_counted() -> None:
    rig = Rig()
    leader, *others = rig.stable_group(SIZE)
    rig.leave(others.pop())  # begins the round
    known = watched(rig)
    for member_id in others:
        assert rig.leave(member_id) == [0]
    assert known.walks == 0
    assert joined(rig.join(member_id=leader))["leader"] == leader
