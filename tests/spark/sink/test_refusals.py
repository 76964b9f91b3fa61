"""Coordinators that have moved, are loading or are busy with the transaction before: the sink asks again.

A proxy refuses requests in the broker's place, which makes the moments certain; `test_moves` has them for real.
"""

from __future__ import annotations

import pytest

from oncelog.faults import FaultProxy
from oncelog.spark.moments import Moment
from tests.spark.sink.on_brokers import Rig, numbered
from tests.spark.sink.test_on_brokers import moments, rig
from tests.spark.support.moments import Moments
from tests.spark.support.refusals import BUSY, COORDINATION, ERRORS, check_refused, refusing

__all__ = ["moments", "rig"]

pytestmark = pytest.mark.on_both_brokers

FIRST, SECOND, THIRD = numbered("first", 40), numbered("second", 30), numbered("third", 20)


def run_behind(proxy: FaultProxy, rig: Rig) -> None:
    there = rig.with_options(kafka_bootstrap_servers=proxy.bootstrap_servers)
    there.run(0, FIRST, SECOND)
    there.run(1, THIRD)
    rig.check(FIRST, SECOND, THIRD)


@pytest.mark.parametrize("error", ERRORS)
def test_a_coordinator_that_refuses_requests(rig: Rig, error: str) -> None:
    with refusing(rig.broker.bootstrap, [error], *COORDINATION) as proxy:
        run_behind(proxy, rig)
        check_refused(proxy, *COORDINATION)


def test_partitions_that_the_transaction_before_still_holds(rig: Rig) -> None:
    """With protocol 2 the records themselves add their partition, so they are what is refused."""
    with refusing(rig.broker.bootstrap, [BUSY], "Produce") as proxy:
        run_behind(proxy, rig)
        check_refused(proxy, "Produce")


@pytest.mark.parametrize("error", ERRORS)
def test_a_decided_batch_whose_coordinator_refuses_the_next_driver(rig: Rig, moments: Moments, error: str) -> None:
    results = rig.write(rig.plan(), 0, FIRST, SECOND)
    moments.arm(Moment.DECIDED, "raise")
    with pytest.raises(OSError, match="decided"):
        rig.commit(0, results)
    with refusing(rig.broker.bootstrap, [error], *COORDINATION) as proxy:
        run_behind(proxy, rig)
        check_refused(proxy, *COORDINATION)
