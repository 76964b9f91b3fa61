"""Any sequence of crashes, replays, zombies and outages ends exactly-once, or with a loud error."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oncelog.spark.sink.errors import JournalFenced, PrefixInUse, RecordsGone, RolledBack
from tests.spark.sink.model_kafka import Fenced
from tests.spark.sink.model_ports import JOURNAL, MARKERS, Blow, World
from tests.spark.sink.model_spark import OUTPUT, Checkpoint, Driver, Row, Task
from tests.support.sizes import examples

FUSES = st.one_of(st.none(), st.integers(1, 12))
BLOWS = st.sampled_from(Blow)
MAX_ZOMBIES = 6
MAX_BATCHES = 8


class SparkOnKafka(RuleBasedStateMachine):
    @initialize(protocol=st.sampled_from([1, 2]), retention_is_short=st.booleans())
    def start(self, protocol: int, retention_is_short: bool) -> None:
        self.retention_is_short = retention_is_short
        self.world = World(protocol)
        self.checkpoint = Checkpoint("query-0")
        self.checkpoints = [self.checkpoint]
        self.driver: Driver | None = None
        self.drivers: list[Driver] = []
        self.tasks: list[Task] = []
        self.rolled_back = self.truncated = False

    # --- Spark's work -------------------------------------------------------------------------------------------

    @rule(rows=st.integers(0, 4), slots=st.integers(1, 3), shift=st.integers(0, 2), fuse=FUSES, blow=BLOWS)
    def plan(self, rows: int, slots: int, shift: int, fuse: int | None, blow: Blow) -> None:
        """The next batch, or the last once more, in this driver or a new one."""
        checkpoint = self.checkpoint
        if self.driver is not None and self.driver.alive:
            return
        if checkpoint.batch_id == len(checkpoint.ends):
            if len(checkpoint.ends) == MAX_BATCHES:
                return
            checkpoint.ends.append((checkpoint.ends or [0])[-1] + rows)
        self.driver = Driver(self.world, checkpoint, slots, shift)
        self.drivers = [*self.drivers, self.driver][-MAX_ZOMBIES:]
        self.world.light(fuse, blow)
        self.driver.plan()
        self._check_error(self.driver)

    @precondition(lambda self: self.driver is not None and self.driver.alive)
    @rule(chance=st.integers(0, 2))
    def try_a_task(self, chance: int) -> None:
        assert self.driver is not None
        self.tasks = [*self.tasks, self.driver.attempt(chance % len(self.driver.slots))][-MAX_ZOMBIES:]

    @precondition(lambda self: self.tasks)
    @rule(chance=st.integers(0, MAX_ZOMBIES), steps=st.integers(1, 6))
    def go_on(self, chance: int, steps: int) -> None:
        """Some attempt, of whatever driver."""
        task = self.tasks[chance % len(self.tasks)]
        for _ in range(steps):
            if not task.over:
                task.advance()

    @precondition(lambda self: self.driver is not None and self.driver.alive)
    @rule()
    def run_the_other_tasks(self) -> None:
        assert self.driver is not None
        self._run_tasks(self.driver)

    @precondition(lambda self: self.driver is not None and self.driver.alive and self.driver.complete)
    @rule(fuse=FUSES, blow=BLOWS, then_abort=st.booleans(), commit_file=st.booleans())
    def commit(self, fuse: int | None, blow: Blow, then_abort: bool, commit_file: bool) -> None:
        driver = self.driver
        assert driver is not None
        before = self.checkpoint.committed
        self.world.light(fuse, blow)
        driver.commit(commit_file=commit_file)
        self._check_error(driver)
        if then_abort and commit_file and self.checkpoint.committed == before:
            driver.abort()

    @precondition(lambda self: self.driver is not None and self.driver.alive)
    @rule(fuse=FUSES, blow=BLOWS)
    def abort(self, fuse: int | None, blow: Blow) -> None:
        assert self.driver is not None
        self.world.light(fuse, blow)
        self.driver.abort()

    @precondition(lambda self: self.driver is not None)
    @rule()
    def kill(self) -> None:
        assert self.driver is not None
        self.driver.alive = False

    # --- what else happens --------------------------------------------------------------------------------------

    @precondition(lambda self: any(one.complete and not one.alive for one in self.drivers))
    @rule(chance=st.integers(0, MAX_ZOMBIES), fuse=FUSES, blow=BLOWS)
    def a_worker_outlives_its_driver(self, chance: int, fuse: int | None, blow: Blow) -> None:
        zombies = [one for one in self.drivers if one.complete and not one.alive]
        self.world.light(fuse, blow)
        zombies[chance % len(zombies)].commit()

    @precondition(lambda self: self.world.late)
    @rule()
    def a_request_arrives_late(self) -> None:
        """It may be refused, and nobody hears of it."""
        with suppress(JournalFenced, Fenced):
            self.world.late.pop(0)()

    @rule()
    def an_outage_longer_than_the_timeout(self) -> None:
        for name in self.world.kafka.open_ids():
            self.world.kafka.time_out(name)

    @rule()
    def transactional_ids_expire(self) -> None:
        for name in list(self.world.kafka.ids):
            if not name.endswith("-driver"):
                self.world.kafka.forget(name)

    @precondition(lambda self: len(self.checkpoints) < 3)
    @rule()
    def the_checkpoint_is_deleted(self) -> None:
        self.kill_any()
        self.checkpoint = Checkpoint(f"query-{len(self.checkpoints)}")
        self.checkpoints.append(self.checkpoint)

    @precondition(lambda self: self.checkpoint.committed > 0)
    @rule(batches=st.integers(1, 2), more=st.integers(0, 2))
    def the_checkpoint_is_rolled_back(self, batches: int, more: int) -> None:
        """And the batch that comes next is cut differently."""
        self.kill_any()
        checkpoint = self.checkpoint
        checkpoint.committed = max(0, checkpoint.committed - batches)
        end = checkpoint.ends[checkpoint.committed]
        del checkpoint.ends[checkpoint.committed :]
        if more:
            checkpoint.ends.append(end + more)
        self.rolled_back = True

    @precondition(lambda self: self.retention_is_short and not self.truncated)
    @rule()
    def retention_removes_the_output(self) -> None:
        for partition in OUTPUT:
            self.world.kafka.log_start[partition] = len(self.world.kafka.log.get(partition, ()))
        self.truncated = True

    def kill_any(self) -> None:
        if self.driver is not None:
            self.driver.alive = False

    # --- what holds ---------------------------------------------------------------------------------------------

    @invariant()
    def no_row_is_visible_twice(self) -> None:
        counts = Counter((row.query_id, row.number) for row in self._visible())
        twice = [row for row, count in counts.items() if count > 1]
        assert not twice, twice

    @invariant()
    def batches_are_in_order(self) -> None:
        for partition in OUTPUT:
            for checkpoint in self.checkpoints:
                rows = [row for row in self._visible([partition]) if row.query_id == checkpoint.query_id]
                batches = [row.batch_id for row in rows]
                assert batches == sorted(batches), batches

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for checkpoint in self.checkpoints[-1:]:
            self._run_to_the_end(checkpoint)
        self.no_row_is_visible_twice()
        self.batches_are_in_order()

    def _run_to_the_end(self, checkpoint: Checkpoint) -> None:
        """Nothing fails any more: the query comes to its end, or says why it cannot."""
        while checkpoint.committed < len(checkpoint.ends):
            driver = Driver(self.world, checkpoint, 2, 0)
            driver.plan()
            if driver.alive:
                self._run_tasks(driver)
                driver.commit()
            if driver.error is not None:
                assert isinstance(driver.error, self._stops()), repr(driver.error)
                return
        try:
            self.world.sink().plan()
        except self._stops():
            return
        self._check_all_is_there()
        assert not self.world.kafka.open_ids()
        for partition in [*OUTPUT, MARKERS, JOURNAL]:
            assert self.world.kafka.last_stable_offset(partition) == len(self.world.kafka.log.get(partition, ()))

    def _check_all_is_there(self) -> None:
        """Of what Spark holds for written, nothing is missing."""
        for checkpoint in self.checkpoints:
            end = checkpoint.ends[checkpoint.committed - 1] if checkpoint.committed else 0
            numbers = {row.number for row in self._visible() if row.query_id == checkpoint.query_id}
            missing = set(range(end)) - numbers
            assert not missing, (checkpoint, missing)

    def _stops(self) -> tuple[type[Exception], ...]:
        return (*([RolledBack] * self.rolled_back), *([RecordsGone] * self.truncated))

    def _check_error(self, driver: Driver) -> None:
        if driver.error is not None:
            assert isinstance(driver.error, (PrefixInUse, JournalFenced, *self._stops())), repr(driver.error)

    def _run_tasks(self, driver: Driver) -> None:
        for slot in range(len(driver.slots)):
            while slot not in driver.results:
                task = driver.attempt(slot)
                while not task.over:
                    task.advance()

    def _visible(self, partitions: list[object] | None = None) -> list[Row]:
        found = [row for partition in partitions or OUTPUT for row in self.world.kafka.visible(partition)]  # type: ignore[arg-type]
        return [row for row in found if isinstance(row, Row)]


SHORT = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def test_any_sequence_of_crashes_ends_exactly_once() -> None:
    run_state_machine_as_test(SparkOnKafka, settings=SHORT)
