"""The order of things in `plan`, `commit` and `abort`, written once for both databases.

A crash between any two statements leaves a ledger from which the next plan goes on; see `ledger` for why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oncelog.spark.moments import Moment, reach
from oncelog.spark.table.columns import Column
from oncelog.spark.table.dialect import LEDGER
from oncelog.spark.table.errors import BadValue, UnfitTable
from oncelog.spark.table.layout import Layout, check_creatable, check_fit
from oncelog.spark.table.ledger import (
    RUNS,
    Batch,
    Line,
    Report,
    Verdict,
    add_up,
    check_counts,
    check_epoch,
    check_newcomer,
    check_renamed,
    check_target,
    is_run,
    judge,
)
from oncelog.spark.table.names import STAGE_PREFIX, PlannedSink, TableName, stage_name, to_sweep
from oncelog.spark.table.settings import Settings, check_columns
from oncelog.spark.table.store import Session, Store


@dataclass(frozen=True, slots=True)
class Plan:
    """Goes to the tasks, and from them to the committer: where the rows go, and under which epoch."""

    sink: str
    epoch: int
    layout: Layout
    repeats_are_harmful: bool
    """A query that the ledger does not know may not publish, if it knows another."""

    @property
    def stage(self) -> TableName:
        return self.layout.target.beside(stage_name(self.sink, self.epoch))


def plan(
    store: Store, settings: Settings, columns: tuple[Column, ...], *, overwrite: bool = False, query: str | None = None
) -> Plan:
    """Finds or makes the tables, checks that they fit, takes the sink over. `query`, if it is known already, is refused
    here rather than when its first batch is complete."""
    check_columns(settings.write, columns)
    layout = _prepare(store, settings, Layout(settings.table, columns, settings.write, overwrite))
    harmful = not (settings.repeats_are_harmless or settings.accept_new_query or overwrite)
    with store.transaction() as session:
        values = {"sink": settings.sink, "target": layout.target.sql}
        ((epoch, target),) = session.rows(store.dialect.take_over(layout.target), values)
        if target != layout.target.sql:  # the sink's row is locked, so nobody publishes between the two statements
            if session.rows(store.dialect.has_lines(layout.target), values):
                check_target(settings.sink, target, layout.target.sql)
            session.change(store.dialect.retarget(layout.target), values)
        planned = Plan(settings.sink, epoch, layout, harmful)
        if query is not None:
            _check_query(store, session, planned, query)
    store.create_stage(planned.stage, layout)
    _sweep(store, planned)
    return planned


def _sweep(store: Store, planned: Plan) -> None:
    """Also what other sinks have left behind: their names may never come again."""
    target = planned.layout.target
    found = [name for name in store.stages(target, STAGE_PREFIX) if name != planned.stage.name]
    if not found:
        return
    with store.transaction() as session:
        sinks = [PlannedSink(*row) for row in session.rows(store.dialect.sinks(target))]
    for name in to_sweep(found, sinks):
        store.drop_stage(target.beside(name))


def _prepare(store: Store, settings: Settings, layout: Layout) -> Layout:
    with store.transaction() as session:
        found = store.find(session, settings.table)
        if found is None:
            store.check_schema(session, settings.table)
            if not settings.create:
                raise UnfitTable(f"there is no table {settings.table}: create it, or set the option create=true")
            check_creatable(layout.columns)
            store.lock_creation(session)
            session.change(store.dialect.create_target(layout))
            found = store.find(session, settings.table)
            assert found is not None, "the table was created in this transaction"
        casts, misfits = store.dialect.casts(layout, found)
        check_fit(layout, found, misfits)
        layout = replace(layout, target=found.name, casts=casts, collations=store.dialect.collations(layout, found))
        store.may_write(session, layout)
        if any(store.find(session, found.name.beside(name)) is None for name in LEDGER):
            store.lock_creation(session)
            for statement in store.dialect.create_ledger(found.name):
                session.change(statement)
    return layout


def commit(store: Store, planned: Plan, reports: Sequence[Report], digest: str | None) -> None:
    """Returns when the batch is published. When it raises, it is published or not: the ledger tells."""
    batch = add_up(reports)
    if batch is not None:
        try:
            with store.publishing(planned.stage) as (session, stage):
                _publish(store, session, planned, batch, digest, stage)
                reach(Moment.TABLE_COMMITTING)
        except BadValue as error:
            raise BadValue(f"{error}{store.refused_row(planned.stage, planned.layout, batch.attempts)}") from error
        reach(Moment.TABLE_PUBLISHED)
    store.drop_stage(planned.stage)


def _publish(store: Store, session: Session, planned: Plan, batch: Batch, digest: str | None, stage: str) -> None:
    sql, layout = store.dialect, planned.layout
    values: dict[str, Any] = {"sink": planned.sink, "query": batch.query, "batch": batch.batch}
    found = session.rows(sql.lock(layout.target), values)
    check_epoch(planned.sink, found[0][0] if found else None, batch.epoch)
    line = session.rows(sql.last_line(layout.target), values)
    last = Line(batch.query, *line[0]) if line else None
    if judge(last, batch.query, batch.batch, digest) is Verdict.REPLAYED:
        return
    if last is None:
        _check_query(store, session, planned, batch.query)
    attempts = {"attempts": batch.attempts}
    check_counts(batch, dict(session.rows(sql.counts(stage), attempts)))
    if layout.overwrite:
        session.change(sql.clear(layout))
    applied = session.change(sql.publish(layout, stage), attempts)
    if layout.delete_when is not None:
        applied += session.change(sql.delete(layout, stage), attempts)
    session.change(sql.add_line(layout.target), {**values, "digest": digest, "rows": batch.rows, "applied": applied})
    session.change(sql.forget_lines(layout.target), values)


def _check_query(store: Store, session: Session, planned: Plan, query: str) -> None:
    sql, target = store.dialect, planned.layout.target
    values = {"sink": planned.sink, "query": query, "target": target.sql, "runs": RUNS}
    if planned.repeats_are_harmful:
        check_newcomer(planned.sink, query, [row[0] for row in session.rows(sql.queries(target), values)])
    if not is_run(query):
        renamed = session.rows(sql.other_sink(target), values)
        check_renamed(planned.sink, query, renamed[0][0] if renamed else None)


def abort(store: Store, planned: Plan) -> None:
    """Spark gives the batch up, or has not understood that it was published. Either way its area is not needed: what is
    not in the ledger is replayed from the source."""
    store.drop_stage(planned.stage)
