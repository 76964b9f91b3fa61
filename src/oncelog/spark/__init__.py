"""Exactly-once pipelines on Spark, through PySpark's Python Data Source API: no JAR.

    from oncelog.spark import register
    register(spark)                      # the formats "oncelog" and "oncelog.table"

The stream tools are here as well (`from oncelog.spark import deduplicate`), and are imported when they are asked for:
every Python process of Spark imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.tools import (
        dead_letter_split,
        decode_avro,
        decode_json,
        deduplicate,
        encode_avro,
        encode_json,
        latest_version,
        reject_out_of_order,
    )
    from oncelog.spark.watch.lag import OffsetsBehind

__all__ = [
    "dead_letter_split",
    "decode_avro",
    "decode_json",
    "deduplicate",
    "encode_avro",
    "encode_json",
    "lag",
    "latest_version",
    "register",
    "reject_out_of_order",
]

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default: without it a batch read of one partition reads them all."""


def register(spark: SparkSession, *, metrics: str | None = None) -> None:
    """Make oncelog's data sources known to a session, check their sinks when a query starts, and follow its queries.

        register(spark)
        register(spark, metrics="127.0.0.1:9464")      # lag, rows and times of all queries, for Prometheus

    Raises WorkersLackOncelog if Spark's workers cannot import oncelog, BadAddress if `metrics` cannot be served there.
    """
    from oncelog.spark.datasource import OncelogSource
    from oncelog.spark.start_check import check_at_start
    from oncelog.spark.table import OncelogTable
    from oncelog.spark.watch.listener import listen
    from oncelog.spark.workers import settle_python

    context = getattr(spark, "_sc", None)
    if context is not None:  # a client of Spark Connect has none: its workers are the server's
        settle_python(context)
        check_at_start()
        listen(spark)
    with _environment_for_many_threads(spark):
        spark.dataSource.register(OncelogSource)
        spark.dataSource.register(OncelogTable)
    spark.conf.set(FILTER_PUSHDOWN, "true")
    if metrics is not None:
        from oncelog.spark.watch.endpoint import serve

        serve(metrics)


def lag(progress: Mapping[str, Any] | None) -> dict[str, OffsetsBehind]:
    """How far each source of a query is behind its topics, by the source's description, from the query's progress.

        lag(query.lastProgress)      # {"...OncelogSource": OffsetsBehind(min=0, max=12, avg=3.0, total=12)}

    Sources that are not topics are left out."""
    from oncelog.spark.watch.lag import lag_by_source

    return lag_by_source(progress)


@contextmanager
def _environment_for_many_threads(spark: SparkSession) -> Iterator[None]:
    """What is registered meanwhile gets a map of the environment that many threads may write to.

    Every streaming query writes to the one of its source when it begins, while others send it to their tasks. Spark
    makes it a plain HashMap: two queries that begin together may leave it broken for the rest of the session, so that
    no task can be read any more (`java.io.OptionalDataException`)."""
    context = getattr(spark, "_sc", None)
    if context is None:  # a client of Spark Connect, which registers on its server
        yield
        return
    plain = context.environment
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(plain)
    try:
        yield
    finally:
        context.environment = plain


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("oncelog.spark.tools"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
