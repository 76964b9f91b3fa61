"""The journal's topic is made while a broker goes away: whether it was made or not, the sink asks again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.faults import FaultProxy, Rule
from tests.spark.sink.on_brokers import Rig, numbered
from tests.spark.sink.test_on_brokers import moments, rig

__all__ = ["moments", "rig"]

pytestmark = pytest.mark.on_both_brokers


@pytest.mark.parametrize("lost", [Rule.drop_request, Rule.drop_response], ids=["the request", "the answer"])
def test_a_connection_that_ends_when_the_topic_is_made(rig: Rig, lost: Callable[..., Rule]) -> None:
    records = numbered("first", 40)
    with FaultProxy(rig.broker.bootstrap, [lost("CreateTopics", limit=1)], seed=7) as proxy:
        rig.with_options(kafka_bootstrap_servers=proxy.bootstrap_servers).run(0, records)
        assert proxy.report().total.dropped == 1
    rig.check(records)
