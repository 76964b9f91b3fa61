"""The sink's ports over the model of Kafka, with a fuse: any call may be the last of its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar, cast

from oncelog.admin.ending import Ended as Outcome
from oncelog.admin.ending import EndedOtherwise, Ending, Next, NothingToEnd, OutcomeForgotten
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.errors import NONE
from oncelog.spark.sink.attempts import Place, Prepared, Range
from oncelog.spark.sink.errors import JournalFenced
from oncelog.spark.sink.finishing import Answer, Copy, Seen
from oncelog.spark.sink.identity import Term, driver_id
from oncelog.spark.sink.journal import Entry, decode, encode
from oncelog.spark.sink.procedure import Sink
from oncelog.types import TopicPartition
from tests.spark.sink.model_kafka import Control, Fenced, ModelKafka

PREFIX = "billing"
JOURNAL = TopicPartition("journal", 0)
MARKERS = TopicPartition("journal", 1)
FAR_AWAY_MS = 10**15
T = TypeVar("T")


class Crash(Exception):
    """The process is no more, or what it asked was not answered in time."""


class Blow(Enum):
    BEFORE = "nothing was asked"
    AFTER = "it is done, and the answer is lost"
    LATE = "the request is on its way, and arrives whenever it likes"


class World:
    def __init__(self, protocol: int) -> None:
        self.kafka = ModelKafka(protocol)
        self.late: list[Callable[[], object]] = []
        self._fuse: tuple[int, Blow] | None = None

    def light(self, calls: int | None, blow: Blow = Blow.BEFORE) -> None:
        self._fuse = None if calls is None else (calls, blow)

    def call(self, effect: Callable[[], T]) -> T:
        if self._fuse is None:
            return effect()
        calls, blow = self._fuse
        self._fuse = (calls - 1, blow)
        if calls != 1:
            return effect()
        self._fuse = None
        if blow is Blow.AFTER:
            effect()
        elif blow is Blow.LATE:
            self.late.append(effect)
        raise Crash

    def sink(self) -> Sink:
        return Sink(PREFIX, ModelJournal(self), ModelTransactions(self), ModelLog(self))


class ModelJournal:
    def __init__(self, world: World) -> None:
        self._world = world
        self._held = Term(-1, -1)

    def term(self) -> Term | None:
        return self._world.call(self._found)

    def _found(self) -> Term | None:
        found = self._world.kafka.ids.get(driver_id(PREFIX))
        return Term(found.producer_id, found.epoch) if found else None

    def take_over(self) -> None:
        self._held = Term(*self._world.call(lambda: self._world.kafka.init(driver_id(PREFIX))))

    def held(self) -> Term:
        return self._held

    def read(self) -> Sequence[Entry]:
        """Compacted on every other reading."""
        found = cast(list[tuple[bytes, bytes]], self._world.kafka.visible(JOURNAL))
        if len(found) % 2:
            found = list(dict(found).items())
        return [decode(*one) for one in found]

    def append(self, entry: Entry) -> None:
        """A transaction, so that a fenced driver cannot: two requests, either of which may be the last."""
        kafka, me = self._world.kafka, PreparedTransaction(driver_id(PREFIX), *self._held)
        try:
            self._world.call(lambda: kafka.produce(*me, JOURNAL, encode(entry)))
        except Fenced as error:
            raise JournalFenced("somebody has taken over") from error
        if self._world.call(lambda: kafka.end_txn(*me, commit=True)) != NONE:
            raise JournalFenced("somebody has taken over")
        self._held = self._found() or self._held


class ModelTransactions:
    def __init__(self, world: World) -> None:
        self._world = world
        self._kafka = world.kafka

    def commit(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Answer]:
        return {one.transaction: self._end(one.transaction, Outcome.COMMITTED) for one in attempts}

    def abort(self, attempts: Sequence[Prepared]) -> None:
        for one in attempts:
            self._end(one.transaction, Outcome.ABORTED)

    def _end(self, prepared: PreparedTransaction, wanted: Outcome) -> Answer:
        """As `Admin.end_transaction` asks, with its own rules of what an answer means."""
        ending = Ending(prepared, wanted)
        by_protocol_2 = self._kafka.protocol == 2
        step: Outcome | Next = ending.first(by_protocol_2=by_protocol_2)
        commit = wanted is Outcome.COMMITTED
        try:
            while isinstance(step, Next):
                if step is Next.END:
                    step = ending.after_end(self._world.call(lambda: self._kafka.end_txn(*prepared, commit=commit)))
                else:
                    found = self._kafka.describe(prepared.transactional_id)
                    step = ending.after_look(found, by_protocol_2=by_protocol_2)
        except EndedOtherwise as error:
            step = error.outcome
        except (OutcomeForgotten, NothingToEnd):
            return Answer.UNCLEAR
        return Answer.COMMITTED if step is Outcome.COMMITTED else Answer.ABORTED

    def list_open(self, prefix: str) -> Sequence[PreparedTransaction]:
        return [
            PreparedTransaction(name, self._kafka.ids[name].producer_id, self._kafka.ids[name].epoch)
            for name in self._kafka.open_ids()
            if name.startswith(prefix)
        ]

    def fence(self, open_transactions: Sequence[PreparedTransaction]) -> None:
        for one in open_transactions:
            self._world.call(lambda one=one: self._kafka.init(one.transactional_id))  # type: ignore[misc]


class ModelLog:
    def __init__(self, world: World) -> None:
        self._world = world
        self._kafka = world.kafka

    def look(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Seen]:
        return {one.transaction: self._look(one) for one in attempts}

    def _look(self, attempt: Prepared) -> Seen:
        partition, offset = attempt.marker
        if offset < self._kafka.log_start.get(partition, 0):
            return Seen.GONE
        if offset >= self._kafka.last_stable_offset(partition):
            return Seen.UNSETTLED
        return Seen.COMMITTED if self._kafka.outcomes(partition)[offset] is Control.COMMIT else Seen.ABORTED

    def copy(self, plan: Copy) -> Prepared:
        source = plan.source
        name = plan.transactional_id
        producer = self._world.call(lambda: self._kafka.init(name))
        writing = Writing(self._world, source.slot, PreparedTransaction(name, *producer))
        for partition, first, last, _ in source.ranges:
            for offset in range(max(first, self._kafka.log_start.get(partition, 0)), last + 1):
                stored = self._kafka.log[partition][offset]
                theirs = (stored.producer_id, stored.epoch) == source.transaction[1:]
                if theirs and not isinstance(stored.value, Control):
                    writing.produce(partition, stored.value)
        return writing.prepare()


class Writing:
    """A producer that leaves its transaction open: a task's, or that of a copy."""

    def __init__(self, world: World, slot: int, transaction: PreparedTransaction) -> None:
        self._world = world
        self._slot = slot
        self._transaction = transaction
        self._ranges: dict[TopicPartition, Range] = {}

    def produce(self, partition: TopicPartition, value: object) -> None:
        offset = self._store(partition, value)
        _, first, _, count = self._ranges.get(partition, (partition, offset, offset, 0))
        self._ranges[partition] = Range(partition, first, offset, count + 1)

    def prepare(self) -> Prepared:
        marker = Place(MARKERS, self._store(MARKERS, "marker"))
        return Prepared(self._slot, self._transaction, tuple(sorted(self._ranges.values())), marker, FAR_AWAY_MS)

    def _store(self, partition: TopicPartition, value: object) -> int:
        return self._world.call(lambda: self._world.kafka.produce(*self._transaction, partition, value))
