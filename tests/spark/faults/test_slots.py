"""Rows are dealt to slots otherwise than before: more slots, fewer, by chance; slots and batches without any rows."""

from __future__ import annotations

import shutil

from oncelog.spark.moments import Moment
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.sizes import only_at_full_size

ROWS = 60


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_replay_has_other_slots_and_rows_in_them(rig: Rig, runner: SessionRunner) -> None:
    """A batch that was not decided is written again whole, and what slots that are no more had begun is ended. One that
    was decided is finished as it was, whatever the slots of its replay would hold."""
    for moment, before, after in (
        (Moment.COMMITTING, {"by_key": 4}, {"by_key": 1}),
        (Moment.DECIDED, {"by_key": 2}, {"by_key": 3}),
    ):
        rig.feed(ROWS)
        rig.moments.arm(moment, "kill")
        assert rig.outcome(runner, slots=before) is not None
        assert rig.moments.reached(moment)
        rig.run_to_the_end(runner, slots=after)
        rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_replay_deals_rows_by_chance(rig: Rig, runner: SessionRunner) -> None:
    """A slot has other rows then. To skip by slot would lose some, and repeat others."""
    for moment in (Moment.COMMITTING, Moment.ENDING):
        rig.feed(ROWS)
        rig.moments.arm(moment, "kill")
        assert rig.outcome(runner, slots={"at_random": 3}) is not None
        assert rig.moments.reached(moment)
    rig.run_to_the_end(runner, slots={"at_random": 3})
    rig.check(in_order=False)


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_slots_and_batches_without_rows(rig: Rig, runner: SessionRunner) -> None:
    rig.feed(10, only=0)  # all in one input partition, and in one of three slots at most five keys
    rig.run_to_the_end(runner, slots={"by_key": 8})
    rig.feed(10, only=1)
    rig.expected, kept = rig.expected[:10], rig.expected
    rig.run_to_the_end(runner, where="false")
    rig.check()
    rig.expected = kept[:10]
    rig.feed(10)
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_deleted_checkpoint_begins_again_and_skips_nothing(rig: Rig, runner: SessionRunner) -> None:
    """A new query, whose batch 0 is not the batch 0 that the journal knows."""
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    shutil.rmtree(rig.checkpoint)
    rig.expected *= 2
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_checkpoint_that_was_rolled_back_stops_the_query(rig: Rig, runner: SessionRunner) -> None:
    """It would write batches again that are visible; and, with the newest restored, goes on as if nothing had been."""
    older, newest = rig.folder / "older", rig.folder / "newest"
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    shutil.copytree(rig.checkpoint, older)
    rig.feed(ROWS)
    rig.run_to_the_end(runner, source={"maxOffsetsPerTrigger": str(ROWS // 2)})
    shutil.copytree(rig.checkpoint, newest)
    _restore(rig, older)
    assert "was rolled back" in (rig.outcome(runner) or "")
    rig.check()
    _restore(rig, newest)
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    rig.check()


@only_at_full_size("as tests/spark/sink shows it on brokers, with Spark in between")
def test_a_checkpoint_rolled_back_by_one_batch_whose_input_has_grown_since(rig: Rig, runner: SessionRunner) -> None:
    """Its last batch comes again under the same number with more rows: to skip it would lose them."""
    older = rig.folder / "older"
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    shutil.copytree(rig.checkpoint, older)
    rig.feed(ROWS)
    rig.run_to_the_end(runner)
    _restore(rig, older)
    visible = list(rig.expected)
    rig.feed(ROWS)
    assert "was rolled back" in (rig.outcome(runner) or "")
    rig.expected = visible
    rig.check()


def _restore(rig: Rig, copy: object) -> None:
    shutil.rmtree(rig.checkpoint)
    shutil.copytree(str(copy), rig.checkpoint)
