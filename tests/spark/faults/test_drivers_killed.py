"""Drivers die by SIGKILL with all their processes, each at its moment, and the next one goes on from the checkpoint.

Every life has new input, so a life finishes what the one before had begun and dies over the next batch, or dies while
it finishes that. The successor starts while its predecessor works: a JVM takes its time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from oncelog.spark.moments import Moment
from tests.spark.support.rig import Rig
from tests.support.process import BrokerProcess

IS_SOAK = "ONCELOG_SOAK" in os.environ
ROWS = 40
MANY_SLOTS = 18
"""More than are committed at once, so that there is a moment with some committed and others not."""

BEFORE = (Moment.FLUSHED, Moment.COMMITTING)
IN_THE_COMMIT = (Moment.DECIDED, Moment.DONE, Moment.ENDED_SOME)
"""Each after a batch that is done: DECIDED leaves one that DONE, in the next life's plan, comes to finish; then the
replay is skipped, and it is the commit of the next batch that has some of its slots ended."""
IN_THE_RECOVERY = (Moment.PLANNING, Moment.ENDING, Moment.ENDED_ALL, Moment.DONE)


def die_at_each(rig: Rig, moments: Iterable[Moment], **changes: object) -> None:
    driver = rig.driver()
    for moment in moments:
        rig.feed(ROWS)
        successor = rig.driver()
        rig.kill_at(moment, driver, **changes)
        driver = successor
    rig.feed(ROWS)
    rig.run_to_the_end(driver, **changes)
    driver.close()


@pytest.mark.on_both_brokers
def test_a_driver_that_is_killed_at_any_moment_of_a_batch(
    broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    if IS_SOAK:
        moments = (*BEFORE, *IN_THE_COMMIT, *IN_THE_RECOVERY)
    else:
        moments = IN_THE_COMMIT if broker.kind == "oncelog" else (Moment.DECIDED,)
    with Rig(broker, tmp_path, new_topic()) as rig:
        die_at_each(rig, moments, slots={"by_key": MANY_SLOTS})
        rig.check()
