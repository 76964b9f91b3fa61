"""Sticky assignors: as even as subscriptions allow, and nobody loses what it could keep."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.membership.assignor import Assignments, Subscription
from oncelog.client.membership.assignors.sticky import (
    Claim,
    CooperativeStickyAssignor,
    StickyAssignor,
    decode_claim,
    encode_claim,
)
from oncelog.types import TopicPartition
from tests.support.sizes import examples

GENERATION = 7
EXAMPLES = settings(max_examples=examples(100), deadline=None)
Group = tuple[dict[str, list[frozenset[str]]], dict[str, Subscription]]


def topic_of(count: int) -> list[frozenset[str]]:
    return [frozenset()] * count


def partitions(topic: str, *indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in indexes)


def member(*topics: str, owned: tuple[TopicPartition, ...] = (), generation: int = GENERATION) -> Subscription:
    return Subscription(topics=topics, owned=owned, generation_id=generation)


def assign(topics: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignments:
    return CooperativeStickyAssignor().assign({name: topic_of(count) for name, count in topics.items()}, members)


@st.composite
def owned_groups(draw: st.DrawFn, *, uniform: bool) -> Group:
    """Members that own some partitions, none of them two."""
    counts = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 6), min_size=1))
    names = sorted(counts)
    size = draw(st.integers(1, 6))
    wanted = [
        names if uniform else draw(st.lists(st.sampled_from(names), min_size=1, unique=True)) for _ in range(size)
    ]
    owned: list[list[TopicPartition]] = [[] for _ in range(size)]
    for name in names:
        for index in range(counts[name]):
            owner = draw(st.integers(-1, size - 1))
            if owner >= 0 and name in wanted[owner]:
                owned[owner].append(TopicPartition(name, index))
    members = {f"m{n}": member(*wanted[n], owned=tuple(owned[n])) for n in range(size)}
    return {name: topic_of(count) for name, count in counts.items()}, members


def every_wanted_partition_is_given_once(group: Group, given_out: Assignments) -> None:
    topics, members = group
    wanted = {topic for one in members.values() for topic in one.topics}
    expected = [TopicPartition(name, n) for name in topics if name in wanted for n in range(len(topics[name]))]
    assert sorted(one for some in given_out.values() for one in some) == sorted(expected)
    for member_id, some in given_out.items():
        assert {one.topic for one in some} <= set(members[member_id].topics)


def nobody_can_be_relieved(group: Group, given_out: Assignments) -> None:
    """No chain of handing on leads from a member to one that has two less."""
    _, members = group
    for source in members:
        reached = {source}
        queue = deque([source])
        while queue:
            topics = {one.topic for one in given_out[queue.popleft()]}
            for other in members.keys() - reached:
                if topics & set(members[other].topics):
                    reached.add(other)
                    queue.append(other)
        for other in reached:
            assert len(given_out[source]) - len(given_out[other]) < 2, (source, other, given_out)


def moves(group: Group, given_out: Assignments) -> int:
    return sum(len(set(one.owned) - set(given_out[member_id])) for member_id, one in group[1].items())


@EXAMPLES
@given(owned_groups(uniform=True))
def test_with_equal_subscriptions_it_is_even_and_as_few_move_as_possible(group: Group) -> None:
    topics, members = group
    given_out = CooperativeStickyAssignor().assign(topics, members)
    every_wanted_partition_is_given_once(group, given_out)
    sizes = [len(some) for some in given_out.values()]
    assert max(sizes) - min(sizes) <= 1
    share, extras = divmod(sum(sizes), len(members))
    owned = sorted((len(one.owned) for one in members.values()), reverse=True)
    fewest = sum(max(0, count - share - (place < extras)) for place, count in enumerate(owned))
    assert moves(group, given_out) == fewest


@EXAMPLES
@given(owned_groups(uniform=False))
def test_with_any_subscriptions_it_is_as_even_as_can_be(group: Group) -> None:
    topics, members = group
    given_out = CooperativeStickyAssignor().assign(topics, members)
    every_wanted_partition_is_given_once(group, given_out)
    nobody_can_be_relieved(group, given_out)


@EXAMPLES
@given(owned_groups(uniform=False))
def test_no_moved_partition_could_go_back_to_its_owner(group: Group) -> None:
    topics, members = group
    given_out = CooperativeStickyAssignor().assign(topics, members)
    now = {one: member_id for member_id, some in given_out.items() for one in some}
    for member_id, subscription in members.items():
        for partition in subscription.owned:
            if now[partition] != member_id:
                assert len(given_out[now[partition]]) <= len(given_out[member_id])


@EXAMPLES
@given(owned_groups(uniform=False))
def test_assigned_again_nothing_moves(group: Group) -> None:
    topics, members = group
    assignor = CooperativeStickyAssignor()
    first = assignor.assign(topics, members)
    again = {
        member_id: member(*subscription.topics, owned=tuple(first[member_id]))
        for member_id, subscription in members.items()
    }
    assert {one: set(some) for one, some in assignor.assign(topics, again).items()} == {
        one: set(some) for one, some in first.items()
    }


def test_the_newcomer_gets_its_share_and_the_others_keep_the_rest() -> None:
    members = {"a": member("t", owned=partitions("t", 0, 1, 2)), "b": member("t", owned=partitions("t", 3, 4, 5))}
    given_out = assign({"t": 6}, {**members, "c": member("t", generation=-1)})
    assert [len(given_out[one]) for one in "abc"] == [2, 2, 2]
    assert set(given_out["a"]) < set(partitions("t", 0, 1, 2))
    assert set(given_out["b"]) < set(partitions("t", 3, 4, 5))


def test_a_claim_of_an_older_generation_is_void() -> None:
    members = {
        "a": member("t", owned=partitions("t", 0, 1), generation=6),
        "b": member("t", owned=partitions("t", 0, 1), generation=7),
        "c": member("t"),
    }
    given_out = assign({"t": 3}, members)
    assert set(given_out["b"]) & set(partitions("t", 0, 1))
    assert set(given_out["a"]) != set(partitions("t", 0, 1))


def test_two_claims_of_one_generation_void_each_other() -> None:
    members = {"a": member("t", owned=partitions("t", 0)), "b": member("t", owned=partitions("t", 0))}
    given_out = assign({"t": 2}, members)
    assert sorted(map(len, given_out.values())) == [1, 1]


def test_partitions_and_topics_that_are_gone_are_not_kept() -> None:
    members = {"a": member("t", owned=(*partitions("t", 0, 5), *partitions("gone", 0)))}
    assert assign({"t": 1}, members) == {"a": list(partitions("t", 0))}


def test_what_is_no_longer_wanted_moves_to_who_wants_it() -> None:
    members = {"a": member("u", owned=partitions("t", 0)), "b": member("t")}
    assert assign({"t": 1, "u": 1}, members) == {"a": list(partitions("u", 0)), "b": list(partitions("t", 0))}


def test_a_chain_relieves_whoever_cannot_be_relieved_directly() -> None:
    """a and c share no topic; b shares one with each."""
    members = {
        "a": member("t", owned=partitions("t", 0, 1)),
        "b": member("t", "u", owned=partitions("u", 0)),
        "c": member("u"),
    }
    given_out = assign({"t": 2, "u": 1}, members)
    assert [len(given_out[one]) for one in "abc"] == [1, 1, 1]


def test_sticky_members_tell_in_their_user_data_what_they_had() -> None:
    assignor = StickyAssignor()
    data = assignor.user_data(partitions("t", 1), GENERATION)
    topics = {"t": topic_of(2)}
    members = {"a": Subscription(("t",), user_data=data), "b": Subscription(("t",))}
    assert assignor.assign(topics, members) == {"a": list(partitions("t", 1)), "b": list(partitions("t", 0))}


def test_members_of_old_clients_tell_their_generation_in_the_user_data() -> None:
    old = Subscription(("t",), user_data=struct.pack(">i", 8), owned=partitions("t", 1))
    members = {"a": member("t", owned=partitions("t", 0, 1), generation=7), "b": old}
    assert assign({"t": 2}, members) == {"a": list(partitions("t", 0)), "b": list(partitions("t", 1))}


@EXAMPLES
@given(st.binary(max_size=60))
def test_rubbish_claims_nothing_or_something_but_never_fails(data: bytes) -> None:
    claim = decode_claim(data)
    assert isinstance(claim, Claim)
    StickyAssignor().assign({"t": topic_of(2)}, {"a": Subscription(("t",), user_data=data)})


def test_the_first_version_of_user_data_had_no_generation() -> None:
    data = encode_claim(Claim(partitions("t", 0, 1), GENERATION))
    assert decode_claim(data[:-4]) == Claim(partitions("t", 0, 1), -1)


def test_counts_that_no_bytes_follow_cost_nothing() -> None:
    huge = struct.pack(">ihci", 1, 1, b"t", 2**31 - 1)
    assert decode_claim(huge) == Claim()


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 4))
def test_a_large_group_with_differing_subscriptions_is_balanced_in_reasonable_time(odd: int) -> None:
    members = {f"m{n:02}": member(*(f"t{(n + k * odd) % 10}" for k in range(4))) for n in range(40)}
    topics = {f"t{n}": topic_of(50) for n in range(10)}
    given_out = CooperativeStickyAssignor().assign(topics, members)
    group = (topics, members)
    every_wanted_partition_is_given_once(group, given_out)
    nobody_can_be_relieved(group, given_out)
