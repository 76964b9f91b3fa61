"""What the tests of table sinks share: settings, Arrow batches, and a sink without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncelog.spark.options import Options
from oncelog.spark.table.columns import Column, columns_of
from oncelog.spark.table.ledger import Report, Staged
from oncelog.spark.table.procedure import Plan, commit, plan
from oncelog.spark.table.settings import WHAT, Settings, read_settings
from oncelog.spark.table.writer import open_store

ORDER_TYPES = {"id": "bigint", "version": "bigint", "state": "string"}
ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "string": pa.string(),
    "binary": pa.binary(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "decimal(38,10)": pa.decimal128(38, 10),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "void": pa.null(),
}
"""As Spark hands them over."""
Slots = Sequence[Sequence[Sequence[Any]]]
"""The rows of a batch, slot by slot."""


def settings_of(url: str, **options: str) -> Settings:
    given = {"url": url, "table": "orders", "sink.name": "shop", "create": "true"}
    return read_settings(Options({**given, **{k.replace("_", "."): v for k, v in options.items()}}, WHAT))


def batch_of(types: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    schema = pa.schema([(name, ARROW[type_name]) for name, type_name in types.items()])
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class Job:
    """Does what Spark does with a sink, one step after the other, each with a connection of its own."""

    settings: Settings
    types: Mapping[str, str]
    query: str = "query-1"
    next_attempt: int = 1

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.types.items())

    def plan(self, **options: Any) -> Plan:
        with closing(open_store(self.settings)) as store:
            return plan(store, self.settings, self.columns, **options)

    def stage(self, planned: Plan, batch: int, slots: Slots) -> list[Report]:
        return [self.stage_slot(planned, batch, slot, rows) for slot, rows in enumerate(slots)]

    def stage_slot(self, planned: Plan, batch: int, slot: int, rows: Sequence[Sequence[Any]]) -> Report:
        staged = None
        if rows:
            with closing(open_store(self.settings)) as store:
                attempt, self.next_attempt = self.next_attempt, self.next_attempt + 1
                count = store.fill(planned.stage, planned.layout, attempt, iter([batch_of(self.types, rows)]))
            staged = Staged(slot, attempt, count)
        return Report(self.query, batch, planned.epoch, slot, staged)

    def commit(self, planned: Plan, reports: Sequence[Report], digest: str | None = None) -> None:
        with closing(open_store(self.settings)) as store:
            commit(store, planned, reports, digest)

    def run(self, batch: int, slots: Slots, digest: str | None = None) -> None:
        planned = self.plan()
        self.commit(planned, self.stage(planned, batch, slots), digest)

    def look(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(open_store(self.settings)) as store, store.transaction() as session:
            return session.rows(statement)

    def areas(self, planned: Plan) -> list[str]:
        with closing(open_store(self.settings)) as store:
            return list(store.stages(planned.layout.target, "oncelog_stage_"))
