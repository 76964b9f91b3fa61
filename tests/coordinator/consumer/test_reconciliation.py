"""The steps of one member towards its target: give up first, then take, and wait for what others still have."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.coordinator.consumer.member import Member, MemberState, Partitions
from oncelog.coordinator.consumer.reconciliation import Goal, reconcile
from oncelog.errors import FencedMemberEpoch

T, U = UUID(int=1), UUID(int=2)


def parts(*numbers: int, topic: UUID = T) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


def member(
    *numbers: int, epoch: int = 5, state: MemberState = MemberState.STABLE, revoking: tuple[int, ...] = ()
) -> Member:
    return Member(
        "a",
        epoch=epoch,
        previous_epoch=epoch,
        state=state,
        assigned={T: dict.fromkeys(numbers, epoch)} if numbers else {},
        revoking={T: dict.fromkeys(revoking, epoch)} if revoking else {},
    )


def step(
    before: Member,
    target: Partitions,
    *,
    epoch: int = 6,
    owned: Partitions | None = None,
    owners: dict[int, str] | None = None,
    changed: bool = False,
    subscribed: frozenset[UUID] = frozenset({T}),
) -> Member:
    holders = {(T, number): name for number, name in (owners or {}).items()}
    for held in (before.assigned, before.revoking):
        holders.update({(topic, number): before.member_id for topic, numbers in held.items() for number in numbers})
    return reconcile(before, Goal(epoch, target, subscribed), lambda *place: holders.get(place), owned, changed)


def held(after: Member) -> set[int]:
    return set(after.assigned.get(T, {}))


def test_a_member_at_its_target_stays_as_it_is() -> None:
    before = member(0, 1)
    assert step(before, parts(0, 1), epoch=5) is before


def test_what_is_free_is_taken_with_the_new_epoch() -> None:
    after = step(member(0), parts(0, 1))
    assert (after.epoch, after.previous_epoch, after.state) == (6, 5, MemberState.STABLE)
    assert after.assigned == {T: {0: 5, 1: 6}}


def test_it_stays_in_its_epoch_until_it_has_given_up() -> None:
    after = step(member(0, 1), parts(0))
    assert (after.epoch, after.state) == (5, MemberState.UNREVOKED_PARTITIONS)
    assert held(after) == {0}
    assert after.revoking == {T: {1: 5}}


@pytest.mark.parametrize("owned", [None, parts(0, 1), parts(1)], ids=["says nothing", "still has it", "has only it"])
def test_it_waits_while_the_member_may_still_have_it(owned: Partitions | None) -> None:
    before = member(0, state=MemberState.UNREVOKED_PARTITIONS, revoking=(1,))
    assert step(before, parts(0), owned=owned) is before


@pytest.mark.parametrize("owned", [parts(0), {}], ids=["keeps the rest", "has nothing"])
def test_whoever_has_given_up_goes_on(owned: Partitions) -> None:
    after = step(member(0, state=MemberState.UNREVOKED_PARTITIONS, revoking=(1,)), parts(0, 2), owned=owned)
    assert (after.epoch, after.state, held(after), after.revoking) == (6, MemberState.STABLE, {0, 2}, {})


def test_a_newer_target_may_ask_for_more() -> None:
    before = member(0, 1, state=MemberState.UNREVOKED_PARTITIONS, revoking=(2,))
    after = step(before, parts(0), epoch=7, owned=parts(0, 1))
    assert (after.epoch, after.state, held(after)) == (5, MemberState.UNREVOKED_PARTITIONS, {0})
    assert after.revoking == {T: {1: 5}}


def test_it_may_give_up_and_get_on_in_one_step_if_it_has_nothing_anyway() -> None:
    after = step(member(0, 1), parts(2), owned={})
    assert (after.epoch, after.state, held(after)) == (6, MemberState.STABLE, {2})


def test_it_waits_for_what_others_have_and_takes_the_rest() -> None:
    after = step(member(0), parts(0, 1, 2), owners={2: "b"})
    assert (after.epoch, after.state, held(after)) == (6, MemberState.UNRELEASED_PARTITIONS, {0, 1})


def test_what_others_released_is_taken() -> None:
    before = member(0, epoch=6, state=MemberState.UNRELEASED_PARTITIONS)
    assert step(before, parts(0, 1), owners={1: "b"}).state is MemberState.UNRELEASED_PARTITIONS
    after = step(before, parts(0, 1))
    assert (after.epoch, after.state, held(after)) == (6, MemberState.STABLE, {0, 1})


def test_what_it_was_to_give_up_can_come_back() -> None:
    before = member(0, state=MemberState.UNREVOKED_PARTITIONS, revoking=(1,))
    after = step(before, parts(0, 1), epoch=7, owned=parts(0))
    assert (after.epoch, after.state, held(after)) == (7, MemberState.STABLE, {0, 1})


def test_a_topic_that_it_no_longer_wants_is_taken_at_once() -> None:
    after = step(member(0, 1), parts(0, 1), epoch=5, changed=True, subscribed=frozenset({U}))
    assert (after.epoch, after.state, held(after)) == (5, MemberState.UNREVOKED_PARTITIONS, set())
    assert after.revoking == {T: {0: 5, 1: 5}}


def test_a_topic_that_it_no_longer_wants_and_has_not_is_forgotten() -> None:
    after = step(member(0, 1), parts(0, 1), epoch=5, changed=True, owned={}, subscribed=frozenset({U}))
    assert (after.epoch, after.state, after.assigned, after.revoking) == (5, MemberState.STABLE, {}, {})


def test_the_target_of_an_unwanted_topic_counts_for_nothing() -> None:
    after = step(member(), parts(0), subscribed=frozenset())
    assert (after.state, after.assigned) == (MemberState.STABLE, {})


def test_an_unknown_state_begins_anew() -> None:
    before = member(0, state=MemberState.UNKNOWN)
    for owned in (None, parts(0)):
        with pytest.raises(FencedMemberEpoch):
            step(before, parts(0), owned=owned)
    assert step(before, parts(0), owned={}).state is MemberState.STABLE
