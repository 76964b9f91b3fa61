"""The source: topics as DataFrames, streaming and batch, with the options and columns of Spark's own Kafka source.

Owns what is read and in which ranges. Never writes, joins no consumer group, and keeps no position: that is in the
query's checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from oncelog.spark.options import Options

__all__ = ["batch_reader", "schema_of", "stream_reader"]


def schema_of(options: Options) -> StructType:
    from oncelog.spark.source.schema import spark_schema
    from oncelog.spark.source.settings import includes_headers

    return spark_schema(includes_headers(options))


def stream_reader(options: Options) -> DataSourceStreamReader:
    """Raises BadOption."""
    from oncelog.spark.source.settings import stream_settings
    from oncelog.spark.source.stream import StreamReader

    return StreamReader(stream_settings(options))


def batch_reader(options: Options) -> DataSourceReader:
    """Raises BadOption."""
    from oncelog.spark.source.batch import BatchReader, FilteringBatchReader, filters_are_pushed
    from oncelog.spark.source.settings import batch_settings

    settings = batch_settings(options)
    return FilteringBatchReader(settings) if filters_are_pushed() else BatchReader(settings)
