"""The table sink as Spark calls it: plans on the driver, tasks on executors, commits on the driver again.

Each runs in a process that may be another every time. What they know travels: the plan with the writer to the tasks,
and with their reports to the committer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.moments import Moment, reach
from oncelog.spark.table.errors import Disagreement, UnreachableDatabase
from oncelog.spark.table.ledger import RUNS, Report, Staged
from oncelog.spark.table.procedure import Plan, abort, commit
from oncelog.spark.table.settings import Settings
from oncelog.spark.table.store import Store

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
COMMIT_PAUSES_S: Final = (0.2, 1.0, 3.0, 10.0)
"""Before a commit whose answer was lost is asked for again. If it had happened, the ledger says so."""


@dataclass(frozen=True)
class TableMessage(WriterCommitMessage):
    plan: Plan
    report: Report


def open_store(settings: Settings) -> Store:
    """psycopg is imported only by those who have PostgreSQL."""
    if settings.is_postgres:
        try:
            from oncelog.spark.table.postgres_store import PostgresStore
        except ModuleNotFoundError as error:
            raise UnreachableDatabase(
                f'this Python has no {error.name}, by which PostgreSQL is reached: pip install "oncelog[postgres]", on '
                "the driver and for the executors"
            ) from None
        return PostgresStore(settings)
    from oncelog.spark.table.sqlite_store import SqliteStore

    return SqliteStore(settings)


class StreamTableWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: Settings, plan: Plan | None) -> None:
        """Without a plan it is the committer's, which takes that of the tasks."""
        self._settings = settings
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        assert self._plan is not None, "tasks get the planner's writer"
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query is not None, "Spark tells a task of a stream its query"
        assert batch is not None, "Spark tells a task of a stream its batch"
        return _stage(self._settings, self._plan, query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        found = _reported(messages)
        if any(one.report.batch != batchId for one in found):
            raise Disagreement(f"batch {batchId} is committed with reports of batch {found[0].report.batch}")
        checkpoint = self._settings.checkpoint
        if found:
            digest = None if checkpoint is None else Checkpoint(checkpoint).digest(batchId)
            _commit(self._settings, found[0].plan, found, digest)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Without a report there is no telling which plan it was: its staging area is left to the next plan."""
        found = _reported(messages)
        if found:
            _abort(self._settings, found[0].plan)


class BatchTableWriter(DataSourceArrowWriter):
    def __init__(self, settings: Settings, plan: Plan) -> None:
        self._settings = settings
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        run_id = self._settings.run_id
        query, batch = (RUNS, self._plan.epoch) if run_id is None else (RUNS + run_id, 0)
        return _stage(self._settings, self._plan, query, batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A frame without partitions has no reports, but a staging area."""
        _commit(self._settings, self._plan, _reported(messages), None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Also when no task has reported: this writer was made by the plan, so it knows the staging area."""
        _abort(self._settings, self._plan)


def _stage(settings: Settings, plan: Plan, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> TableMessage:
    context = _context()
    slot, attempt = context.partitionId(), context.taskAttemptId()
    staged = None
    first = next((one for one in batches if one.num_rows), None)
    if first is not None:
        with closing(open_store(settings)) as store, store.explaining():
            rows = store.fill(plan.stage, plan.layout, attempt, chain([first], batches))
        staged = Staged(slot, attempt, rows)
        reach(Moment.TABLE_STAGED)
    return TableMessage(plan, Report(query, batch, plan.epoch, slot, staged))


def _commit(settings: Settings, plan: Plan, found: Sequence[TableMessage], digest: str | None) -> None:
    with closing(open_store(settings)) as store, store.explaining():
        for pause_s in (*COMMIT_PAUSES_S, None):
            try:
                commit(store, plan, [one.report for one in found], digest)
                return
            except Exception as error:
                if pause_s is None or not store.is_outage(error):
                    raise
            store.close()
            time.sleep(pause_s)


def _abort(settings: Settings, plan: Plan) -> None:
    with closing(open_store(settings)) as store:
        abort(store, plan)


def _reported(messages: Sequence[WriterCommitMessage | None]) -> list[TableMessage]:
    """Tasks that failed have sent none; Spark commits only if there are no such."""
    return [one for one in messages if isinstance(one, TableMessage)]


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are staged by tasks of Spark only"
    return context
