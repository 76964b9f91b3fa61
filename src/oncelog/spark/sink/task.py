"""What a task does with the rows of its slot, and what it reports: the part of the sink that runs on executors.

Never commits. Where it runs is all it knows of Spark; rows come as Arrow batches, which are let go of as soon as the
producer has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncelog.client.table_result import TableFuture
from oncelog.client.transaction.prepared import SharedTransaction
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.atomic import check_attempt
from oncelog.spark.sink.attempts import Nothing, Prepared, TaskResult
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.columns import tables_by_topic
from oncelog.spark.sink.deciding import Choice, choose
from oncelog.spark.sink.errors import TooLate
from oncelog.spark.sink.identity import slot_id
from oncelog.spark.sink.journal_topic import is_in_term
from oncelog.spark.sink.procedure import Planned
from oncelog.spark.sink.settings import Mode, SinkSettings
from oncelog.spark.sink.slot_writer import SlotWriter


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """From the planner to the tasks of a batch."""

    planned: Planned
    timeout_ms: int
    whole: SharedTransaction | None
    """The one that all tasks of an atomic batch write into."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of the query's work this is."""

    query_id: str
    batch_id: int
    slot: int
    attempt: int


def write_slot(settings: SinkSettings, plan: TaskPlan, place: Place, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    if choose(plan.planned.last_done, place.query_id, place.batch_id) is Choice.SKIP:
        for _ in batches:
            pass
        outcome: Prepared | Nothing = Nothing.SKIPPED
    else:
        outcome = _written(settings, plan, place, batches)
    return TaskResult(place.query_id, place.batch_id, place.slot, plan.planned.term, outcome)


def _written(
    settings: SinkSettings, plan: TaskPlan, place: Place, batches: Iterator[pa.RecordBatch]
) -> Prepared | Nothing:
    writer: SlotWriter | None = None
    there = {settings.topic}  # the plan has seen to the one that is for all rows
    with ExitStack() as stack:
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = stack.enter_context(_new_writer(settings, plan, place))
                _check_in_time(settings, plan, place)
            for topic, table in tables_by_topic(batch, settings.topic, settings.columns):
                if topic not in there:
                    Brokers(settings.client).ensure_topic(topic, settings.new_topic)
                    there.add(topic)
                writer.write(topic, _owned(table, place.slot, writer.partitions_of(topic)) if plan.whole else table)
        if writer is None:
            return Nothing.EMPTY
        prepared = writer.prepare()
    reach(Moment.FLUSHED)
    return prepared


def _new_writer(settings: SinkSettings, plan: TaskPlan, place: Place) -> SlotWriter:
    brokers = Brokers(settings.client)
    if plan.whole is None:
        name = slot_id(settings.name, place.slot)
        return SlotWriter(brokers, settings.name, name, place.slot, plan.timeout_ms)
    check_attempt(place.attempt)
    name = plan.whole.transactional_id
    return SlotWriter(brokers, settings.name, name, place.slot, plan.timeout_ms, plan.whole)


def _check_in_time(settings: SinkSettings, plan: TaskPlan, place: Place) -> None:
    """Once the slot is taken. A commit that has not begun by then finds the slot taken, and fences it; one that has
    would not, and readers would wait for this transaction until the next batch, or until it times out."""
    if plan.whole is None and not is_in_term(Brokers(settings.client), settings.name, plan.planned.term):
        raise TooLate(
            f"slot {place.slot} of batch {place.batch_id} was taken after the batch's commit had begun, or another "
            "driver has taken over: another attempt of this task has won, and this one wrote nothing"
        )


def _owned(table: pa.Table, slot: int, partitions: int) -> pa.Table:
    """Rows that any partition may take go to one that no other task takes for its own, as far as there are enough."""
    if "partition" in table.column_names:
        return table
    own = pa.scalar(slot % partitions, pa.int32())
    if "key" not in table.column_names:
        chosen = pa.repeat(own, table.num_rows)
    else:
        chosen = pc.if_else(pc.is_null(table.column("key")), own, pa.scalar(None, pa.int32()))
    return table.append_column("partition", chosen)


def write_plainly(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> int:
    """Without transactions: rows are visible at once, and again if the task or the batch is repeated. The number of
    rows. A topic that does not exist is left to the broker, as Spark's own sink leaves it, unless the query creates."""
    is_idempotent = settings.mode is Mode.IDEMPOTENT
    with Brokers(settings.client).producer(acks="all", enable_idempotence=is_idempotent) as producer:
        sent: list[TableFuture] = []
        rows = 0
        there: set[str] = set()
        for batch in batches:
            for topic, table in tables_by_topic(batch, settings.topic, settings.columns):
                if settings.new_topic is not None and topic not in there:
                    Brokers(settings.client).ensure_topic(topic, settings.new_topic)
                    there.add(topic)
                sent.append(producer.send_table(topic, table))
            sent = _undecided(sent)
            rows += batch.num_rows
        for future in sent:
            future.result()
    return rows


def _undecided(sent: list[TableFuture]) -> list[TableFuture]:
    for future in sent:
        if future.done():
            future.result()
    return [future for future in sent if not future.done()]
