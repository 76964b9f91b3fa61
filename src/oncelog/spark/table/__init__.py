"""Exactly-once table sinks: `format("oncelog.table")` for PostgreSQL and SQLite.

    task     rows into a staging area, under the number of the attempt           store.fill
    plan     find or make the tables, check, take the sink over, sweep           procedure.plan
    commit   rows and the ledger's line in one database transaction              procedure.commit
    abort    drop the staging area                                               procedure.abort

What always holds, and why, stands in `ledger`.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.options import BadOption, Options
from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.procedure import Plan, plan
from oncelog.spark.table.settings import WHAT, Settings, check_streaming, read_settings
from oncelog.spark.table.writer import BatchTableWriter, StreamTableWriter, open_store

__all__ = ["OncelogTable"]


class OncelogTable(DataSource):
    _is_committers = False

    @classmethod
    def name(cls) -> str:
        return "oncelog.table"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Spark makes a new data source to plan a batch, and sends one that it had pickled to the committer: that is
        how to tell them apart. A committer must not plan: it would take the sink over from its own tasks."""
        self.__dict__.update(state)
        self._is_committers = True

    def schema(self) -> StructType:
        """Spark asks for it only to read."""
        raise BadOption(
            f"{WHAT} only writes: read the table with spark.read.format('jdbc') and the driver's JAR, or with pandas "
            "and spark.createDataFrame"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        self.schema()
        raise AssertionError("it only writes")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        self.schema()
        raise AssertionError("it only writes")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        settings = self._settings()
        check_streaming(settings)
        if self._is_committers:
            return StreamTableWriter(settings, None)
        query = None if settings.checkpoint is None else Checkpoint(settings.checkpoint).query_id()
        return StreamTableWriter(settings, _plan(settings, schema, overwrite, query))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        settings = self._settings()
        return BatchTableWriter(settings, _plan(settings, schema, overwrite, None))

    def _settings(self) -> Settings:
        return read_settings(Options(self.options, WHAT))


def _plan(settings: Settings, schema: StructType, overwrite: bool, query: str | None) -> Plan:
    columns = columns_of((field.name, field.dataType.simpleString()) for field in schema.fields)
    with closing(open_store(settings)) as store, store.explaining():
        return plan(store, settings, columns, overwrite=overwrite, query=query)
