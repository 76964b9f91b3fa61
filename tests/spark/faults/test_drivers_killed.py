"""Drivers die by SIGKILL with all their processes, each at its moment, and the next one goes on from the checkpoint.

Every life has new input, so a life finishes what the one before had begun and dies over the next batch, or dies while
it finishes that. The successor starts while its predecessor works: a JVM takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from oncelog.spark.moments import Moment
from tests.spark.support.rig import Rig
from tests.support.process import BrokerProcess
from tests.support.sizes import long_at_full_size, on_both_brokers_at_full_size, only_at_full_size

ROWS = 40
MANY_SLOTS = 18
"""More than are committed at once, so that there is a moment with some committed and others not."""

MOMENTS = (
    Moment.FLUSHED,
    Moment.COMMITTING,
    Moment.DECIDED,
    # The next life finishes that batch when it plans, and dies over it.
    Moment.PLANNING,
    Moment.ENDING,
    Moment.ENDED_SOME,
    Moment.ENDED_ALL,
    Moment.DONE,
    # Its replay is skipped; here it is the next batch, in its commit.
    Moment.ENDED_SOME,
    Moment.PLANNED,
    Moment.ENDED_ALL,
    Moment.PLANNED,
    Moment.DONE,
)


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


@only_at_full_size("`oncelog demo`, in every run, kills one inside a commit")
@long_at_full_size
@on_both_brokers_at_full_size
def test_a_driver_that_is_killed_at_any_moment_of_a_batch(
    broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    with Rig(broker, tmp_path, new_topic()) as rig:
        die_at_each(rig, MOMENTS, slots={"by_key": MANY_SLOTS})
        rig.check()
