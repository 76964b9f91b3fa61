"""Planners, tasks and committers die, each at every moment that has a name; the batch, or the query, starts again.

One driver goes through all of it. What a batch was when its worker died, the next plan finds in the journal.
"""

from __future__ import annotations

from oncelog.spark.moments import Moment
from tests.spark.support.driver import command_line
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.patience import eventually
from tests.support.sizes import IS_SOAK, on_both_brokers_at_full_size, only_at_full_size

ROWS = 40
IDLE_LIMIT_S = 240.0
TASK = (Moment.FENCED_IN, Moment.WRITING, Moment.FLUSHED)
ALL = (
    Moment.PLANNING,
    Moment.PLANNED,
    *TASK,
    Moment.COMMITTING,
    Moment.DECIDED,
    # The batch is decided now: from here on it is the next planner that finishes it, and dies.
    Moment.ENDING,
    Moment.ENDED_SOME,
    Moment.ENDED_ALL,
    Moment.DONE,
)
CORE = (Moment.WRITING, Moment.COMMITTING, Moment.DECIDED, Moment.ENDED_SOME, Moment.DONE)


@on_both_brokers_at_full_size
def test_whoever_dies_at_whatever_moment_rows_come_out_once(rig: Rig, runner: SessionRunner) -> None:
    for moment in ALL if IS_SOAK else CORE:
        rig.feed(ROWS)
        rig.moments.arm(moment, "kill")
        failure = rig.outcome(runner)
        assert rig.moments.reached(moment), f"nobody came to {moment.value!r}"
        # A task is tried again, a planner or a committer is not: the query fails, and is started again.
        assert (failure is None) == (moment in TASK), f"{moment.value}: {failure}"
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_an_atomic_batch_whose_workers_die(rig: Rig, runner: SessionRunner) -> None:
    """Its tasks share one transaction, and none of them can be tried again: the whole batch is."""
    shared = {"sink": {"atomic": "batch"}, "slots": {"by_partition": 4}}
    for moment in (*TASK, *ALL[-6:]) if IS_SOAK else CORE:
        rig.feed(ROWS)
        rig.moments.arm(moment, "kill")
        assert rig.outcome(runner, **shared) is not None
        assert rig.moments.reached(moment), f"nobody came to {moment.value!r}"
    rig.feed(ROWS)
    rig.run_to_the_end(runner, **shared)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_commit_that_fails_after_its_decision_is_not_undone_by_the_abort_that_follows(
    rig: Rig, runner: SessionRunner
) -> None:
    """Spark calls abort() after a commit() that raised. What is decided stays so."""
    for moment in (Moment.DECIDED, Moment.DONE):
        rig.feed(ROWS)
        rig.moments.arm(moment, "raise")
        rig.moments.arm(Moment.ABORTING, "hold")
        runner.run(rig.plan())
        rig.moments.await_reached(Moment.ABORTING)
        rig.moments.release(Moment.ABORTING)
        assert "told to fail" in (runner.outcome() or "")
        rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("Spark ends workers after a minute")
def test_workers_that_spark_ended_for_idleness(rig: Rig, runner: SessionRunner) -> None:
    """A query that has nothing to do for long goes on in new ones, which know nothing but the journal."""
    rig.feed(ROWS)
    rig.moments.arm(Moment.COMMITTING)
    runner.run(rig.plan(every="0 seconds"))
    committer = rig.moments.await_reached(Moment.COMMITTING)
    rig.moments.release(Moment.COMMITTING)
    eventually(lambda: not command_line(committer), "Spark ends the committer", IDLE_LIMIT_S)
    rig.feed(ROWS)
    rig.moments.arm(Moment.COMMITTING)
    assert rig.moments.await_reached(Moment.COMMITTING) != committer
    rig.moments.release(Moment.COMMITTING)
    runner.stop()
    rig.run_to_the_end(runner)
    rig.check()
