"""range and roundrobin, rule by rule; that they equal Kafka's own is shown in tests/golden."""

from __future__ import annotations

from oncelog.client.membership.assignor import EAGER, Subscription
from oncelog.client.membership.assignors.catalogue import BUILT_IN, assignors_named
from oncelog.client.membership.assignors.range_assignor import RangeAssignor
from oncelog.client.membership.assignors.round_robin import RoundRobinAssignor
from oncelog.types import TopicPartition

NO_RACKS = frozenset[str]()


def numbers(partitions: list[TopicPartition]) -> list[int]:
    return [one.partition for one in partitions]


def test_range_gives_rows_and_the_first_members_one_more() -> None:
    given = RangeAssignor().assign({"t": [NO_RACKS] * 5}, {one: Subscription(("t",)) for one in "cab"})
    assert {one: numbers(some) for one, some in given.items()} == {"a": [0, 1], "b": [2, 3], "c": [4]}


def test_round_robin_deals_all_topics_in_one_round() -> None:
    given = RoundRobinAssignor().assign(
        {"t": [NO_RACKS] * 3, "u": [NO_RACKS]}, {one: Subscription(("t", "u")) for one in "ab"}
    )
    assert given == {
        "a": [TopicPartition("t", 0), TopicPartition("t", 2)],
        "b": [TopicPartition("t", 1), TopicPartition("u", 0)],
    }


def test_static_members_come_first_by_their_instance_id() -> None:
    members = {
        "a": Subscription(("t",)),
        "b": Subscription(("t",), group_instance_id="2"),
        "c": Subscription(("t",), group_instance_id="1"),
    }
    for assignor in (RangeAssignor(), RoundRobinAssignor()):
        given = assignor.assign({"t": [NO_RACKS] * 3}, members)
        assert {one: numbers(some) for one, some in given.items()} == {"c": [0], "b": [1], "a": [2]}


def test_a_member_gets_partitions_of_its_own_rack_as_far_as_its_share_goes() -> None:
    racks = [frozenset("b"), frozenset("a"), frozenset("b"), frozenset("a")]
    members = {"m1": Subscription(("t",), rack="a"), "m2": Subscription(("t",), rack="b")}
    given = RangeAssignor().assign({"t": racks}, members)
    assert {one: numbers(some) for one, some in given.items()} == {"m1": [1, 3], "m2": [0, 2]}


def test_topics_that_nobody_wants_or_that_do_not_exist_are_left_out() -> None:
    for assignor in BUILT_IN:
        given = assignor.assign({"other": [NO_RACKS]}, {"m": Subscription(("missing",))})
        assert given == {"m": []}, assignor.name


def test_without_members_nothing_is_given() -> None:
    for assignor in BUILT_IN:
        assert assignor.assign({"t": [NO_RACKS]}, {}) == {}, assignor.name


class _Mine:
    name = "mine"

    def assign(self, topics: object, members: dict[str, Subscription]) -> dict[str, list[tuple[str, int]]]:
        return {"m": [("t", 0)]}


def test_a_users_assignor_needs_a_name_and_a_rule_only() -> None:
    [named, mine] = assignors_named(["range", _Mine()])
    assert named.name == "range"
    assert mine.name == "mine"
    assert mine.protocols == (EAGER,)
    assert mine.user_data((), 1) is None
    assert mine.assign({}, {"m": Subscription(()), "n": Subscription(())}) == {"m": [TopicPartition("t", 0)], "n": []}
