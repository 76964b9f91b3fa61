"""The data source `oncelog`, as Spark meets it: topics as tables and streams, in both directions.

Spark makes it in one process, sends it by pickle to others, and asks it there for readers and writers. One that came by
pickle is never asked to plan a write: Spark plans with one that it has just made. Only who writes imports the sink:
most processes of Spark read.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from oncelog.spark import source
from oncelog.spark.options import Options

SOURCE = "the oncelog source"


class OncelogSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._came_by_pickle = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_came_by_pickle": True}

    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def schema(self) -> StructType:
        return source.schema_of(Options(self.options, SOURCE))

    def reader(self, schema: StructType) -> DataSourceReader:
        return source.batch_reader(Options(self.options, SOURCE))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return source.stream_reader(Options(self.options, SOURCE))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from oncelog.spark.sink import writers

        return writers.batch_writer(writers.settings_of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from oncelog.spark.sink import writers

        settings = writers.settings_of(self.options, schema)
        return writers.stream_writer(settings, is_planning=not self._came_by_pickle)
