"""Brokers that die, forget or hand over, answers that are lost, epochs that run out, and protocol 1 of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from oncelog.faults import FaultProxy, Rule
from oncelog.spark.moments import Moment
from oncelog.spark.sink.journal_topic import journal_topic
from tests.spark.faults.test_salvage import fence
from tests.spark.support.moments import Moments
from tests.spark.support.refusals import BUSY, COORDINATION, MOVED, check_refused, refusing
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.broker import OncelogBroker
from tests.support.moving import COORDINATION as COORDINATION_TOPIC
from tests.support.moving import KafkaPair
from tests.support.patience import eventually
from tests.support.raw import RawClient
from tests.support.sizes import IS_SOAK, only_at_full_size
from tests.support.transactions import HandProducer

ROWS = 40
IN_SHORT = (Moment.WRITING, Moment.DECIDED)
ALL = (Moment.WRITING, Moment.COMMITTING, Moment.DECIDED, Moment.ENDED_ALL)
LOST = 4
"""More than a decision and the two slots have, so that one of them is lost twice."""


@pytest.fixture(params=[2, 1] if IS_SOAK else [2], ids="v{}".format)
def mortal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OncelogBroker]:
    """One of its own, which speaks protocol 2 of transactions (KIP-890), or protocol 1 alone."""
    config = {"log.retention.ms": "-1", "oncelog.transaction.version": str(request.param)}
    with OncelogBroker(tmp_path / "broker", config) as broker:
        yield broker


def test_a_broker_that_is_killed_at_any_moment_of_a_batch(
    mortal: OncelogBroker, runner: SessionRunner, moments: Moments, tmp_path: Path
) -> None:
    """Tasks and committers wait for it; what they were told, they know, and the rest they ask again. In between a
    decided transaction is aborted by somebody who took its id, and copied."""
    with Rig(mortal, tmp_path, "killed", moments) as rig:
        for moment in ALL if IS_SOAK else IN_SHORT:
            rig.feed(ROWS)
            moments.arm(moment)
            runner.run(rig.plan(slots={"by_key": 3}))
            moments.await_reached(moment)
            mortal.kill()
            mortal.start()
            if moment is Moment.DECIDED:
                fence(rig)
            moments.release(moment)
            failure = runner.outcome()
            assert failure is None, f"{moment.value}: {failure}"
        rig.check()


def test_answers_to_the_ends_of_transactions_that_are_lost(rig: Rig, runner: SessionRunner) -> None:
    """The decision's own, and the slots': each was done, and is asked for again."""
    rules = [Rule.drop_response("EndTxn", limit=LOST), Rule.drop_response("InitProducerId", limit=LOST)]
    rig.feed(ROWS)
    with FaultProxy(rig.broker.bootstrap, rules) as proxy:
        rig.run_to_the_end(runner, sink={"kafka.bootstrap.servers": proxy.bootstrap_servers})
        lost = proxy.report().responses
    assert {name: lost[name].dropped for name in ("EndTxn", "InitProducerId")} == {
        "EndTxn": LOST,
        "InitProducerId": LOST,
    }
    rig.check()


def test_coordinators_that_have_moved_or_are_busy(rig: Rig, runner: SessionRunner) -> None:
    """Half of the requests ask one that is elsewhere, half one that is not done with the batch before."""
    rig.feed(ROWS)
    with refusing(rig.broker.bootstrap, (MOVED, BUSY), *COORDINATION) as proxy:
        rig.run_to_the_end(runner, sink={"kafka.bootstrap.servers": proxy.bootstrap_servers})
        check_refused(proxy, *COORDINATION)
    rig.check()


@only_at_full_size("two brokers of Apache Kafka")
def test_coordinators_and_leaders_that_move_during_a_batch(
    runner: SessionRunner, moments: Moments, tmp_path: Path
) -> None:
    with KafkaPair(tmp_path / "brokers", {}) as pair, Rig(pair.first, tmp_path, "moved", moments) as rig:
        pair.join()
        rig.feed(ROWS)
        rig.run_to_the_end(runner)
        for moment in (Moment.PLANNING, Moment.WRITING, Moment.FLUSHED, Moment.DECIDED, Moment.ENDED_ALL):
            rig.feed(ROWS)
            moments.arm(moment)
            runner.run(rig.plan())
            moments.await_reached(moment)
            pair.move([COORDINATION_TOPIC, rig.input, rig.output, journal_topic(rig.prefix)])
            moments.release(moment)
            failure = runner.outcome()
            assert failure is None, f"{moment.value}: {failure}"
        rig.check()


FORGETFUL = {
    "log.retention.ms": "-1",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@only_at_full_size("a broker that is started twice")
def test_a_broker_that_has_forgotten_the_transactional_ids_meanwhile(
    runner: SessionRunner, moments: Moments, tmp_path: Path
) -> None:
    """All slots are committed, the journal does not say so, and no coordinator can tell: the records can."""
    with (
        OncelogBroker(tmp_path / "broker", FORGETFUL) as forgetful,
        Rig(forgetful, tmp_path, "forgotten", moments) as rig,
    ):
        rig.feed(ROWS)
        moments.arm(Moment.ENDED_ALL, "kill")
        assert rig.outcome(runner) is not None
        with oncelog.Admin(forgetful.bootstrap) as admin:
            eventually(lambda: not admin.list_transactions(), "all transactional ids are forgotten")
        rig.feed(ROWS)
        rig.run_to_the_end(runner)
        rig.check()


LAST_EPOCHS = 32_760
"""The next but few have no number left: then a transactional id gets another producer id."""


@only_at_full_size("sixty thousand requests")
def test_epochs_that_run_out(rig: Rig, runner: SessionRunner) -> None:
    with RawClient(rig.broker.address) as client:
        for name in (f"{rig.prefix}-driver", f"{rig.prefix}-0"):
            producer = HandProducer(client, name).begun()
            while producer.epoch < LAST_EPOCHS:
                assert producer.init() == "none"
    for _ in range(8):
        rig.feed(ROWS)
        rig.run_to_the_end(runner, slots={"by_key": 1})
    rig.check()
