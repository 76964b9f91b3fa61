"""Spark as the protocol found it: batches with offsets and commits in a checkpoint, attempts of tasks that nobody tells
that they lost, an abort after a commit that raised, replays of the last batch with its rows in other slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import Nothing, TaskResult
from oncelog.spark.sink.deciding import Choice, choose
from oncelog.spark.sink.errors import SinkError
from oncelog.spark.sink.identity import slot_id
from oncelog.spark.sink.journal import digest_of
from oncelog.spark.sink.procedure import Planned
from oncelog.types import TopicPartition
from tests.spark.sink.model_kafka import Fenced
from tests.spark.sink.model_ports import PREFIX, Crash, World, Writing

OUTPUT = [TopicPartition("paid", 0), TopicPartition("paid", 1)]


@dataclass(frozen=True)
class Row:
    query_id: str
    number: int
    batch_id: int


@dataclass
class Checkpoint:
    query_id: str
    ends: list[int] = field(default_factory=list)
    """By batch: where it ends in the source."""
    committed: int = 0
    """How many batches Spark holds for complete."""

    @property
    def batch_id(self) -> int:
        return self.committed

    def rows(self) -> list[Row]:
        first = self.ends[self.batch_id - 1] if self.batch_id else 0
        return [Row(self.query_id, number, self.batch_id) for number in range(first, self.ends[self.batch_id])]

    def digest(self) -> str:
        return digest_of([f'{{"end": {self.ends[self.batch_id]}}}'])


class Task:
    """One attempt. It advances a step at a time, and as long as it likes: its driver may be long gone."""

    def __init__(self, driver: Driver, slot: int, rows: list[Row]) -> None:
        self.driver = driver
        self.slot = slot
        self._steps = self._run(driver, rows)
        self.over = False

    def advance(self) -> None:
        try:
            next(self._steps)
        except (StopIteration, Fenced, Crash):
            self.over = True

    def _run(self, driver: Driver, rows: list[Row]) -> Iterator[None]:
        assert driver.planned is not None
        query_id, batch_id, world = driver.query_id, driver.batch_id, driver.world

        def report(outcome: object) -> None:
            result = TaskResult(query_id, batch_id, self.slot, driver.planned.term, outcome)  # type: ignore[union-attr, arg-type]
            driver.results.setdefault(self.slot, result)

        if choose(driver.planned.last_done, query_id, batch_id) is Choice.SKIP:
            return report(Nothing.SKIPPED)
        if not rows:
            return report(Nothing.EMPTY)
        name = slot_id(PREFIX, self.slot)
        writing = Writing(world, self.slot, PreparedTransaction(name, *world.call(lambda: world.kafka.init(name))))
        for row in rows:
            yield
            writing.produce(OUTPUT[row.number % len(OUTPUT)], row)
        yield
        report(writing.prepare())


class Driver:
    """Of one batch. `errors` are what it stopped with, loudly."""

    def __init__(self, world: World, checkpoint: Checkpoint, slots: int, shift: int) -> None:
        self.world = world
        self.checkpoint = checkpoint
        self.query_id, self.batch_id = checkpoint.query_id, checkpoint.batch_id
        self.digest = checkpoint.digest()
        self.slots: list[list[Row]] = [[] for _ in range(slots)]
        for row in checkpoint.rows():
            self.slots[(row.number // 2 + shift) % slots].append(row)
        self.planned: Planned | None = None
        self.results: dict[int, TaskResult] = {}
        self.alive = True
        self.error: SinkError | None = None

    def plan(self) -> None:
        self._do(self._plan)

    def _plan(self) -> None:
        self.planned = self.world.sink().plan()
        choose(self.planned.last_done, self.query_id, self.batch_id)

    def attempt(self, slot: int) -> Task:
        return Task(self, slot, self.slots[slot])

    @property
    def complete(self) -> bool:
        return self.planned is not None and len(self.results) == len(self.slots)

    def commit(self, *, commit_file: bool = True) -> None:
        """Also as a zombie: a worker that goes on without its driver."""
        was_alive = self.alive
        results = list(self.results.values())
        self._do(lambda: self.world.sink().commit(self.batch_id, results, self.digest, now_ms=lambda: 0))
        if was_alive and self.alive and commit_file:
            self.checkpoint.committed += 1
        self.alive = False

    def abort(self) -> None:
        self._do(lambda: self.world.sink().abort(list(self.results.values())))
        self.alive = False

    def _do(self, what: object) -> None:
        try:
            what()  # type: ignore[operator]
        except Crash:
            self.alive = False
        except SinkError as error:
            self.alive, self.error = False, error
        finally:
            self.world.light(None)
