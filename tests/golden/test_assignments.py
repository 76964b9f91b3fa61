"""What Kafka's own assignors decide, ours decide; what its members write, ours write: asked of Kafka's own classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.client.membership.assignor import Assignor, Subscription
from oncelog.client.membership.assignors.range_assignor import RangeAssignor
from oncelog.client.membership.assignors.round_robin import RoundRobinAssignor
from oncelog.client.membership.assignors.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
    decode_claim,
    encode_claim,
)
from oncelog.client.membership.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.types import TopicPartition
from tests.golden.capture_assignments import COUNT, WITH_BYTES, captured, groups

CASES = list(zip(groups(), captured(), strict=True))
WRITTEN = [
    (member, answer["bytes"][member_id])
    for group, answer in CASES[:WITH_BYTES]
    for member_id, member in group["members"].items()
]


def subscriptions(group: Mapping[str, Any]) -> dict[str, Subscription]:
    return {
        member_id: Subscription(
            topics=tuple(member["topics"]),
            owned=owned(member),
            generation_id=member["generation"],
            rack=member["rack"],
            group_instance_id=member["instance"],
        )
        for member_id, member in group["members"].items()
    }


def owned(member: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(*one) for one in member["owned"])


def test_there_is_enough_to_compare() -> None:
    assert len(CASES) == COUNT
    assert any(member["rack"] for group, _ in CASES for member in group["members"].values())
    assert any(member["instance"] for group, _ in CASES for member in group["members"].values())
    assert any("missing" in member["topics"] for group, _ in CASES for member in group["members"].values())


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda one: one.name)
def test_members_get_what_kafkas_assignor_gives_them(assignor: Assignor) -> None:
    for group, answer in CASES:
        topics = {name: [frozenset(racks) for racks in partitions] for name, partitions in group["topics"].items()}
        given = assignor.assign(topics, subscriptions(group))
        expected = {
            member_id: sorted(TopicPartition(*one) for one in some) for member_id, some in answer[assignor.name].items()
        }
        assert {member_id: sorted(some) for member_id, some in given.items()} == expected, group


def test_subscriptions_are_written_as_kafka_writes_them() -> None:
    for member, written in WRITTEN:
        for user_data, golden in ((None, "subscription"), (b"\1\2\3", "with-user-data")):
            data = encode_subscription(
                member["topics"],
                user_data=user_data,
                owned=owned(member),
                generation_id=member["generation"],
                rack=member["rack"],
            )
            assert data.hex() == written[golden]


def test_kafkas_subscriptions_are_read() -> None:
    for member, written in WRITTEN:
        read = decode_subscription(bytes.fromhex(written["with-user-data"]), member["instance"])
        assert read == Subscription(
            topics=tuple(sorted(member["topics"])),
            user_data=b"\1\2\3",
            owned=tuple(sorted(owned(member))),
            generation_id=member["generation"],
            rack=member["rack"],
            group_instance_id=member["instance"],
        )


def test_assignments_are_written_and_read_as_kafkas() -> None:
    for member, written in WRITTEN:
        golden = bytes.fromhex(written["assignment"])
        assert decode_assignment(golden) == frozenset(owned(member))
        by_topic: dict[str, list[TopicPartition]] = {}
        for one in owned(member):
            by_topic.setdefault(one.topic, []).append(one)
        topics = sorted(by_topic, key=lambda topic: golden.index(topic.encode()))  # in no order that matters
        assert encode_assignment([one for topic in topics for one in by_topic[topic]]) == golden


def test_what_sticky_members_remember_is_written_as_kafkas() -> None:
    cooperative = CooperativeStickyAssignor()
    for member, written in WRITTEN:
        assert cooperative.user_data(owned(member), member["generation"]) == _bytes(written["cooperative-sticky"])
        assert cooperative.user_data((), -1) == _bytes(written["cooperative-sticky-new"])
        assert StickyAssignor().user_data((), -1) == _bytes(written["sticky-new"])
        golden = _bytes(written["sticky"]) or b""
        claim = decode_claim(golden)
        assert sorted(claim.partitions) == sorted(owned(member))
        assert claim.generation_id == member["generation"]
        assert encode_claim(claim) == golden


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
