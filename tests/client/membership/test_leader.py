"""The leader of a classic group: what it makes of its members, and when the group must rebalance."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import pytest

from oncelog.client.membership.assignor import Subscription
from oncelog.client.membership.assignors.range_assignor import RangeAssignor
from oncelog.client.membership.assignors.sticky import CooperativeStickyAssignor
from oncelog.client.membership.consumer_protocol import decode_assignment, encode_subscription
from oncelog.client.membership.leader import Leader, withhold_what_moves
from oncelog.client.metadata_cache import MetadataCache
from oncelog.types import TopicPartition
from oncelog.wire.codec import Message


def metadata(**counts: int) -> MetadataCache:
    cache = MetadataCache(max_age_ms=1_000, max_idle_ms=1_000, retry_backoff_ms=10)
    learn(cache, **counts)
    return cache


def learn(cache: MetadataCache, *, errors: dict[str, int] | None = None, **counts: int) -> None:
    topics = [topic(name, count) for name, count in counts.items()]
    topics += [topic(name, 0, error) for name, error in (errors or {}).items()]
    brokers = [{"node_id": node, "host": "h", "port": 1, "rack": f"r{node}"} for node in (1, 2)]
    cache.learn({"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": topics}, 0)


def topic(name: str, count: int, error: int = 0) -> Message:
    partitions = [
        {
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 0,
            "replica_nodes": [1 + index % 2],
            "isr_nodes": [1],
            "offline_replicas": [],
            "error_code": 0,
        }
        for index in range(count)
    ]
    return {"name": name, "topic_id": UUID(int=1), "is_internal": False, "partitions": partitions, "error_code": error}


def member(member_id: str, data: bytes) -> Message:
    return {"member_id": member_id, "group_instance_id": None, "metadata": data}


def read(assignments: dict[str, bytes]) -> dict[str, Any]:
    return {member_id: sorted(decode_assignment(data)) for member_id, data in assignments.items()}


def test_a_member_that_writes_rubbish_gets_nothing_and_costs_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    members = [member("good", encode_subscription(["t"])), member("bad", b"\1\2\3")]
    with caplog.at_level(logging.WARNING):
        leader = Leader(RangeAssignor(), members, metadata(t=2))
    assert read(leader.assign()) == {"good": [TopicPartition("t", 0), TopicPartition("t", 1)]}
    assert "bad" in caplog.text


def test_topics_that_are_not_known_yet_are_asked_for_first() -> None:
    cache = metadata(t=1)
    leader = Leader(RangeAssignor(), [member("m", encode_subscription(["t", "u"]))], cache)
    assert leader.topics == {"t", "u"}
    assert not leader.knows_topics
    learn(cache, u=1)
    assert leader.knows_topics
    assert len(read(leader.assign())["m"]) == 2


def test_topics_of_which_nobody_says_anything_do_not_hold_the_group_up() -> None:
    cache = metadata(t=1)
    leader = Leader(RangeAssignor(), [member("m", encode_subscription(["t", "u"]))], cache)
    learn(cache, t=1)
    learn(cache, t=1)
    assert leader.knows_topics


def test_it_is_outdated_when_topics_come_go_or_grow() -> None:
    cache = metadata(t=1)
    leader = Leader(RangeAssignor(), [member("m", encode_subscription(["t", "u"]))], cache)
    leader.assign()
    assert not leader.is_outdated
    learn(cache, t=2)
    assert leader.is_outdated
    leader.assign()
    learn(cache, u=1)
    assert leader.is_outdated
    leader.skip()
    assert not leader.is_outdated
    learn(cache, errors={"u": 3})
    assert leader.is_outdated
    learn(cache, other=5)
    leader.assign()
    assert not leader.is_outdated


def test_a_topic_of_which_the_brokers_cannot_tell_now_is_as_it_was() -> None:
    cache = metadata(t=2)
    leader = Leader(RangeAssignor(), [member("m", encode_subscription(["t"]))], cache)
    leader.assign()
    learn(cache, errors={"t": 5})
    assert not leader.is_outdated
    assert len(read(leader.assign())["m"]) == 2


def test_racks_count_for_members_that_have_one() -> None:
    members = [member("m1", encode_subscription(["t"], rack="r2")), member("m2", encode_subscription(["t"], rack="r1"))]
    leader = Leader(RangeAssignor(), members, metadata(t=2))
    assert read(leader.assign()) == {"m1": [TopicPartition("t", 1)], "m2": [TopicPartition("t", 0)]}


def test_what_another_still_owns_is_given_to_nobody_yet() -> None:
    owned = (TopicPartition("t", 0), TopicPartition("t", 1))
    members = [
        member("old", encode_subscription(["t"], owned=owned, generation_id=3)),
        member("new", encode_subscription(["t"])),
    ]
    given = read(Leader(CooperativeStickyAssignor(), members, metadata(t=2)).assign())
    assert len(given["old"]) == 1
    assert given["new"] == []


def test_a_partition_that_two_claim_is_given_to_neither() -> None:
    one = TopicPartition("t", 0)
    claims = {name: Subscription(("t",), owned=(one,)) for name in "ab"}
    assert withhold_what_moves({"a": [one], "b": []}, claims) == {"a": [], "b": []}
