"""Decided transactions that are aborted all the same: by their timeout, or by an attempt that wakes late.

What was decided is copied from the log; the copy is decided, then committed. Before a decision, a batch that took too
long is written again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import oncelog
from oncelog.spark.moments import Moment
from tests.spark.support.oracle import ENDED
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK, long_at_full_size, on_both_brokers_at_full_size, only_at_full_size

ROWS = 40
SHORT_TIMEOUT_MS = 20_000
"""Three quarters of it are enough for a small batch on any machine, and a test can wait for all of it."""
SALVAGE = (Moment.COPYING, Moment.COPIED, Moment.COPY_DECIDED)


def slots_of(rig: Rig) -> list[str]:
    """The transactional ids of slots whose transactions are open."""
    with oncelog.Admin(rig.broker.bootstrap) as admin:
        listed = admin.list_transactions()
    return [
        one.transactional_id
        for one in listed
        if one.transactional_id.startswith(f"{rig.prefix}-")
        and not one.transactional_id.endswith("-driver")
        and one.state not in ENDED
    ]


def fence(rig: Rig) -> None:
    """As a stopped attempt does that wakes now: InitProducerId aborts what its successor had left open."""
    eventually(lambda: bool(slots_of(rig)), "a slot has something to lose")
    open_slots = slots_of(rig)
    with oncelog.Admin(rig.broker.bootstrap) as admin:
        admin.fence_producers(open_slots)


def test_an_attempt_that_wakes_late_and_takes_its_slot(rig: Rig, runner: SessionRunner) -> None:
    """While another writes, that one is fenced, and tried again. When all is prepared, or decided, what it aborts is
    copied at once, within the same commit."""
    for moment in (Moment.WRITING, Moment.COMMITTING, Moment.DECIDED) if IS_SOAK else (Moment.DECIDED,):
        rig.feed(ROWS)
        rig.moments.arm(moment)
        runner.run(rig.plan())
        rig.moments.await_reached(moment)
        fence(rig)
        rig.moments.release(moment)
        failure = runner.outcome()
        assert failure is None, failure
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
@on_both_brokers_at_full_size
def test_an_outage_longer_than_the_transaction_timeout(rig: Rig, runner: SessionRunner) -> None:
    """After the decision all of the batch is copied. Before it nothing is decided any more: the batch fails, and its
    rows are written again."""
    short = {"kafka.transaction.timeout.ms": str(SHORT_TIMEOUT_MS)}
    for moment in (Moment.DECIDED, Moment.FLUSHED):
        rig.feed(ROWS)
        rig.moments.arm(moment)
        runner.run(rig.plan(sink=short))
        rig.moments.await_reached(moment)
        assert slots_of(rig)
        eventually(lambda: not slots_of(rig), "the broker aborts what took too long")
        rig.moments.release(moment)
        failure = runner.outcome()
        if moment is Moment.DECIDED:
            assert failure is None, failure
        else:
            assert "about to time out" in (failure or ""), failure
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_salvage_whose_process_dies_is_taken_up_by_the_next(rig: Rig, runner: SessionRunner) -> None:
    rig.feed(ROWS)
    rig.moments.arm(Moment.DECIDED)
    rig.moments.arm(Moment.COPYING, "kill")
    runner.run(rig.plan())
    rig.moments.await_reached(Moment.DECIDED)
    fence(rig)
    rig.moments.release(Moment.DECIDED)
    assert runner.outcome() is not None
    for moment in (Moment.COPIED, Moment.COPY_DECIDED):
        rig.moments.arm(moment, "kill")
        assert rig.outcome(runner) is not None
        assert rig.moments.reached(moment), f"nobody came to {moment.value!r}"
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("several lives of drivers")
@long_at_full_size
@on_both_brokers_at_full_size
def test_a_driver_that_is_killed_in_a_salvage(
    broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    with Rig(broker, tmp_path, new_topic()) as rig:
        rig.feed(ROWS)
        rig.kill_at(Moment.DECIDED, rig.driver())
        fence(rig)
        for moment in SALVAGE:
            rig.kill_at(moment, rig.driver())
        rig.feed(ROWS)
        rig.run_to_the_end(rig.driver())
        rig.check()
