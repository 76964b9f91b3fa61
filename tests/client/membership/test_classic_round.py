"""`ClassicRound`: what a member offers, what it makes of the answers, and when the round is to be held again."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.membership.assignors.catalogue import assignors_named
from oncelog.client.membership.classic_round import ClassicRound
from oncelog.client.membership.consumer_protocol import decode_subscription, encode_assignment
from oncelog.client.membership.membership import MembershipSettings
from oncelog.client.metadata_cache import MetadataCache
from oncelog.errors import InconsistentGroupProtocol
from oncelog.types import TopicPartition

ORDERS = frozenset(["orders"])
ONE = TopicPartition("orders", 0)


def new_round() -> ClassicRound:
    settings = MembershipSettings("billing", assignors=assignors_named(["range", "cooperative-sticky"]))
    metadata = MetadataCache(max_age_ms=1_000, max_idle_ms=1_000, retry_backoff_ms=10)
    return ClassicRound(settings, metadata)


def join_answer(**changed: Any) -> dict[str, Any]:
    body = {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "me",
        "member_id": "me",
        "skip_assignment": False,
        "members": [],
    }
    return {**body, **changed}


def sync_answer(*partitions: TopicPartition, protocol_name: str | None = "range") -> dict[str, Any]:
    return {"protocol_name": protocol_name, "assignment": encode_assignment(partitions)}


def test_every_assignor_is_offered_what_we_want_and_own() -> None:
    offers = new_round().begin(ORDERS, frozenset([ONE]), 3)
    assert list(offers) == ["range", "cooperative-sticky"]
    for offer in offers.values():
        said = decode_subscription(offer, None)
        assert (said.topics, said.owned) == (("orders",), (ONE,))


@pytest.mark.parametrize(
    ("answer", "is_to_assign", "is_led"),
    [
        (join_answer(), True, True),
        (join_answer(leader="another"), False, False),
        (join_answer(skip_assignment=True), False, True),
    ],
)
def test_the_leader_assigns_unless_the_coordinator_keeps_what_was(
    answer: dict[str, Any], is_to_assign: bool, is_led: bool
) -> None:
    held = new_round()
    assert held.joined(answer) is is_to_assign
    assert held.is_led is is_led


@pytest.mark.parametrize("answer", [join_answer(protocol_name="sticky"), join_answer(protocol_type="connect")])
def test_what_was_not_offered_is_no_protocol_for_us(answer: dict[str, Any]) -> None:
    with pytest.raises(InconsistentGroupProtocol, match="did not offer"):
        new_round().joined(answer)


def test_an_assignment_is_of_the_protocol_that_was_chosen() -> None:
    held = new_round()
    held.joined(join_answer(leader="another"))
    assert held.assigned(sync_answer(ONE), 4) == frozenset([ONE])
    assert held.assigned(sync_answer(ONE, protocol_name=None), 4) == frozenset([ONE]), "of a coordinator of old"
    with pytest.raises(InconsistentGroupProtocol, match="makes no sense"):
        held.assigned(sync_answer(ONE, protocol_name="sticky"), 4)
    with pytest.raises(InconsistentGroupProtocol, match="makes no sense"):
        held.assigned({"protocol_name": None, "assignment": b"\x00"}, 4)


def test_other_topics_are_a_reason_for_another_round() -> None:
    held = new_round()
    held.begin(ORDERS, frozenset(), -1)
    assert held.why_again(ORDERS) is None
    assert held.why_again(None) is None, "nobody knows yet what a pattern matches"
    assert held.why_again(frozenset(["orders", "refunds"])) == "the topics of the subscription changed"


def test_what_was_had_is_remembered_until_the_place_is_lost() -> None:
    held = new_round()
    first = held.begin(ORDERS, frozenset(), -1)
    held.joined(join_answer(leader="another"))
    held.assigned(sync_answer(ONE), 4)
    assert held.begin(ORDERS, frozenset(), -1) != first
    held.forget()
    assert held.begin(ORDERS, frozenset(), -1) == first
