"""Which member gets what: balance, stickiness, completeness, and the time it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)

TOPICS = [UUID(int=number) for number in range(1, 6)]


def subscriber(name: str, topics: Sequence[UUID], had: Mapping[UUID, frozenset[int]] | None = None) -> Subscriber:
    return Subscriber(name, None, frozenset(topics), had or {})


def loads(assignment: Assignment) -> dict[str, int]:
    return {member_id: sum(map(len, topics.values())) for member_id, topics in assignment.items()}


def every_partition_has_one_reader(
    assignment: Assignment, subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]
) -> None:
    given_out = Counter(
        (topic_id, partition)
        for topics in assignment.values()
        for topic_id, partitions in topics.items()
        for partition in partitions
    )
    read = {topic_id for member in subscribers for topic_id in member.topics}
    assert given_out == Counter((topic_id, partition) for topic_id in read for partition in range(counts[topic_id]))
    for member in subscribers:
        assert assignment[member.member_id].keys() <= member.topics


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions a member lost that had them and is still there."""
    return sum(
        len(partitions - after[member_id].get(topic_id, frozenset()))
        for member_id, topics in before.items()
        if member_id in after
        for topic_id, partitions in topics.items()
    )


def test_uniform_is_even_within_one() -> None:
    members = [subscriber(name, TOPICS[:2]) for name in "abc"]
    assignment = assign_uniform(members, {TOPICS[0]: 4, TOPICS[1]: 4})
    assert sorted(loads(assignment).values()) == [2, 3, 3]


def test_a_newcomer_takes_no_more_than_its_share() -> None:
    counts = {TOPICS[0]: 9}
    before = assign_uniform([subscriber(name, TOPICS[:1]) for name in "abc"], counts)
    members = [subscriber(name, TOPICS[:1], before[name]) for name in "abc"] + [subscriber("d", TOPICS[:1])]
    after = assign_uniform(members, counts)
    assert sorted(loads(after).values()) == [2, 2, 2, 3]
    assert moved(before, after) == 2


def test_who_had_the_odd_partition_keeps_it() -> None:
    had = {"a": {TOPICS[0]: frozenset({0})}, "b": {TOPICS[0]: frozenset({1, 2})}}
    members = [subscriber(name, TOPICS[:1], partitions) for name, partitions in had.items()]
    assert assign_uniform(members, {TOPICS[0]: 3}) == had


def test_partitions_that_two_members_had_go_to_one() -> None:
    """As a log that was cut in the wrong place might say."""
    members = [subscriber(name, TOPICS[:1], {TOPICS[0]: frozenset({0, 1})}) for name in "ab"]
    every_partition_has_one_reader(assign_uniform(members, {TOPICS[0]: 2}), members, {TOPICS[0]: 2})


def test_different_subscriptions_are_evened_out() -> None:
    members = [subscriber("a", TOPICS[:2]), subscriber("b", TOPICS[1:2]), subscriber("c", TOPICS[:1])]
    counts = {TOPICS[0]: 6, TOPICS[1]: 6}
    assignment = assign_uniform(members, counts)
    every_partition_has_one_reader(assignment, members, counts)
    assert sorted(loads(assignment).values()) == [4, 4, 4]


def test_range_gives_runs_and_the_same_run_in_topics_of_the_same_size() -> None:
    members = [subscriber(name, TOPICS[:2]) for name in "ba"]
    assignment = assign_range(members, {TOPICS[0]: 5, TOPICS[1]: 5})
    assert assignment == {
        "a": {TOPICS[0]: frozenset({0, 1, 2}), TOPICS[1]: frozenset({0, 1, 2})},
        "b": {TOPICS[0]: frozenset({3, 4}), TOPICS[1]: frozenset({3, 4})},
    }


def test_range_keeps_the_place_of_an_instance_whatever_its_member_id() -> None:
    counts = {TOPICS[0]: 2}
    first = assign_range([Subscriber("z", "i-1", frozenset(TOPICS[:1]), {}), subscriber("m", TOPICS[:1])], counts)
    later = assign_range([Subscriber("n", "i-1", frozenset(TOPICS[:1]), {}), subscriber("m", TOPICS[:1])], counts)
    assert first["z"] == later["n"] == {TOPICS[0]: frozenset({0})}


def test_nobody_reads_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign([], {}) == {}
        assert assign([subscriber("a", [])], {}) == {"a": {}}


SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
)
COUNTS = st.fixed_dictionaries({topic_id: st.integers(0, 9) for topic_id in TOPICS})


@pytest.mark.parametrize("name", ASSIGNORS)
@given(first=SUBSCRIPTIONS, second=SUBSCRIPTIONS, counts=COUNTS, later_counts=COUNTS)
def test_every_partition_goes_to_one_of_its_readers(
    name: str,
    first: dict[str, frozenset[UUID]],
    second: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    later_counts: dict[UUID, int],
) -> None:
    assign = ASSIGNORS[name]
    members = [Subscriber(member_id, None, topics, {}) for member_id, topics in first.items()]
    before = assign(members, counts)
    every_partition_has_one_reader(before, members, counts)
    members = [Subscriber(member_id, None, topics, before.get(member_id, {})) for member_id, topics in second.items()]
    every_partition_has_one_reader(assign(members, later_counts), members, later_counts)


@given(
    before_count=st.integers(1, 7),
    after_count=st.integers(1, 7),
    counts=COUNTS,
    growth=st.integers(0, 5),
)
def test_uniform_moves_no_more_than_balance_needs(
    before_count: int, after_count: int, counts: dict[UUID, int], growth: int
) -> None:
    before = assign_uniform([subscriber(f"m{n}", TOPICS) for n in range(before_count)], counts)
    later = {topic_id: count + growth for topic_id, count in counts.items()}
    members = [subscriber(f"m{n}", TOPICS, before.get(f"m{n}")) for n in range(after_count)]
    after = assign_uniform(members, later)
    sizes = sorted(loads(after).values())
    assert sizes[-1] - sizes[0] <= 1
    # Those who have more than the even share must give something up; nobody else does, and they no more than that.
    share, odd = divmod(sum(later.values()), after_count)
    had = sorted((sum(map(len, before.get(f"m{n}", {}).values())) for n in range(after_count)), reverse=True)
    assert moved(before, after) == sum(max(0, size - share - (rank < odd)) for rank, size in enumerate(had))


@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_no_partition_could_move_to_a_reader_with_two_less(
    subscriptions: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    members = [Subscriber(member_id, None, topics, {}) for member_id, topics in subscriptions.items()]
    assignment = assign_uniform(members, counts)
    sizes = loads(assignment)
    for giver in members:
        for topic_id in assignment[giver.member_id]:
            for taker in members:
                if topic_id in taker.topics:
                    assert sizes[giver.member_id] - sizes[taker.member_id] < 2


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("is_mixed", [False, True], ids=["one subscription", "many subscriptions"])
def test_a_hundred_members_and_a_thousand_partitions(name: str, is_mixed: bool) -> None:
    topics = [UUID(int=number) for number in range(10)]
    counts = dict.fromkeys(topics, 100)
    members = [subscriber(f"m{n:03}", topics[: 1 + n % 10] if is_mixed else topics) for n in range(100)]
    before = ASSIGNORS[name](members, counts)
    every_partition_has_one_reader(before, members, counts)
    fewer = [member._replace(had=before[member.member_id]) for member in members[:-1]]
    every_partition_has_one_reader(ASSIGNORS[name](fewer, counts), fewer, counts)
