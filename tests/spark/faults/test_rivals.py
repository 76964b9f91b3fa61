"""Two who write under one prefix: queries that should not, and a committer that outlives the driver it belongs to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.spark.moments import Moment
from tests.spark.support.driver import command_line
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.sizes import only_at_full_size

ROWS = 40


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_of_two_queries_with_one_prefix_the_one_that_was_overtaken_stops(rig: Rig, runner: SessionRunner) -> None:
    """It has decided nothing; alone, it writes what is its own."""
    rig.feed(ROWS)
    rig.moments.arm(Moment.FLUSHED)
    runner.run(rig.plan())
    rig.moments.await_reached(Moment.FLUSHED)

    rival = SessionRunner(runner.spark)
    rig.run_to_the_end(rival, sink={"checkpointLocation": str(rig.folder / "rival")})
    rig.moments.release(Moment.FLUSHED)
    assert "another driver has taken over" in (runner.outcome() or "")
    rig.check()

    rig.expected *= 2
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_checkpoint_is_not_continued_under_another_prefix(rig: Rig, runner: SessionRunner) -> None:
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    rig.feed(ROWS)
    failure = rig.outcome(runner, sink={"transactional.id.prefix": f"{rig.prefix}-other"})
    assert "belongs to the transactional.id.prefix" in (failure or "")
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("two drivers for each")
@pytest.mark.parametrize("moment", [Moment.COMMITTING, Moment.DECIDED])
def test_a_committer_that_outlives_its_driver_decides_nothing_any_more(
    oncelog_broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str], moment: Moment
) -> None:
    """Without a daemon nobody ends it. It wakes when the next driver has finished its batch, and another one."""
    with Rig(oncelog_broker, tmp_path, new_topic()) as rig:
        rig.feed(ROWS)
        rig.moments.arm(moment)
        driver, successor = rig.driver({"spark.python.use.daemon": "false"}), rig.driver()
        driver.run(rig.plan())
        committer = rig.moments.await_reached(moment)
        driver.kill(spared=[committer])
        try:
            rig.run_to_the_end(successor)
            rig.feed(ROWS)
            rig.run_to_the_end(successor)
            rig.moments.release(moment)
            eventually(lambda: not command_line(committer), "the committer that was left over ends")
        finally:
            if command_line(committer):
                os.kill(committer, signal.SIGKILL)
        rig.feed(ROWS)
        rig.run_to_the_end(successor)
        rig.check()
        successor.close()
