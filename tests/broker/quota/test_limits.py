"""Which limit holds for a client, and with whom it is shared."""

from __future__ import annotations

import pytest

from oncelog.broker.quota.limits import Limit, Limits, Sharers
from oncelog.controller.state import ClientQuota, QuotaEntity

KEY = "producer_byte_rate"
USER, CLIENT = "alice", "web"

# From the most particular to the most general, as Kafka documents it, with those who are counted together.
PRECEDENCE: list[tuple[QuotaEntity, Sharers]] = [
    ((("client-id", CLIENT), ("user", USER)), Sharers(USER, CLIENT)),
    ((("client-id", None), ("user", USER)), Sharers(USER, CLIENT)),
    ((("user", USER),), Sharers(USER, None)),
    ((("client-id", CLIENT), ("user", None)), Sharers(USER, CLIENT)),
    ((("client-id", None), ("user", None)), Sharers(USER, CLIENT)),
    ((("user", None),), Sharers(USER, None)),
    ((("client-id", CLIENT),), Sharers(None, CLIENT)),
    ((("client-id", None),), Sharers(None, CLIENT)),
]


def limits(*entities: QuotaEntity) -> Limits:
    return Limits(KEY, {ClientQuota(entity, KEY): float(number) for number, entity in enumerate(entities)})


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_particular_limit_holds(first: int) -> None:
    left = PRECEDENCE[first:]
    assert limits(*(entity for entity, _ in left)).find(USER, CLIENT) == Limit(0.0, left[0][1])


def test_limits_of_others_do_not_hold() -> None:
    others = limits((("user", "bob"),), (("client-id", "app"),), (("client-id", CLIENT), ("user", "bob")))
    assert others.find(USER, CLIENT) is None
    assert limits().find(USER, CLIENT) is None


def test_a_client_without_a_name_falls_under_the_default_alone() -> None:
    assert limits((("client-id", CLIENT),), (("client-id", None),)).find(USER, "") == Limit(1.0, Sharers(None, ""))


def test_only_limits_of_the_key() -> None:
    other = Limits("consumer_byte_rate", {ClientQuota((("user", USER),), KEY): 1.0})
    assert not other
    assert other.find(USER, CLIENT) is None
    assert limits((("user", USER),))
