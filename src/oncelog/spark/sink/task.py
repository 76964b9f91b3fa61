"""What a task does with the rows of its slot, and what it reports: the part of the sink that runs on executors.

Never commits. Where it runs is all it knows of Spark; rows come as Arrow batches, which are let go of as soon as the
producer has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from oncelog.client.table_result import TableFuture
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.attempts import Nothing, Prepared, TaskResult
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.columns import tables_by_topic
from oncelog.spark.sink.deciding import Choice, choose
from oncelog.spark.sink.identity import slot_id
from oncelog.spark.sink.procedure import Planned
from oncelog.spark.sink.settings import Mode, SinkSettings
from oncelog.spark.sink.slot_writer import SlotWriter


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """From the planner to the tasks of a batch."""

    planned: Planned
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of the query's work this is."""

    query_id: str
    batch_id: int
    slot: int


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
    with ExitStack() as stack:
        for batch in batches:
            if batch.num_rows and writer is None:
                name = slot_id(settings.name, place.slot)
                opened = SlotWriter(Brokers(settings.client), settings.name, name, place.slot, plan.timeout_ms)
                writer = stack.enter_context(opened)
            if writer is not None and batch.num_rows:
                for topic, table in tables_by_topic(batch, settings.topic, settings.columns):
                    writer.write(topic, table)
        if writer is None:
            return Nothing.EMPTY
        prepared = writer.prepare()
    reach(Moment.FLUSHED)
    return prepared


def write_plainly(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> int:
    """Without transactions: rows are visible at once, and again if the task or the batch is repeated. The number of
    rows."""
    is_idempotent = settings.mode is Mode.IDEMPOTENT
    with Brokers(settings.client).producer(acks="all", enable_idempotence=is_idempotent) as producer:
        sent: list[TableFuture] = []
        rows = 0
        for batch in batches:
            for topic, table in tables_by_topic(batch, settings.topic, settings.columns):
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
