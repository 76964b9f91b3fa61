"""A query's sink is checked when the query starts, not with its first batch.

Spark asks a Python sink nothing before there are rows to write: a misspelt option, or a checkpoint of another prefix,
would be told when the first record arrives, perhaps days later. So `register` puts a check before Spark's
`DataStreamWriter.start`. It asks neither brokers nor databases. What it cannot find out is left to the batch, which
checks everything again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.options import Options
from oncelog.spark.sink.checkpoint import check_owner
from oncelog.spark.sink.settings import WHAT as TOPIC_SINK
from oncelog.spark.sink.settings import Mode, sink_settings
from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.settings import WHAT as TABLE_SINK
from oncelog.spark.table.settings import check_columns, check_streaming, read_settings

logger = logging.getLogger(__name__)

PARAMETERS: Final = ("path", "format", "outputMode", "partitionBy", "queryName")
"""Of `DataStreamWriter.start`, in order; whatever else it is given is an option."""


def check_sink(data_source: str, options: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> None:
    """Raises BadOption, UnfitTable or ForeignCheckpoint. Sinks of other data sources are none of our business."""
    if data_source == "oncelog":
        settings = sink_settings(Options(options, TOPIC_SINK), dict(columns))
        if settings.mode is Mode.EXACTLY_ONCE and settings.checkpoint is not None:
            check_owner(Checkpoint(settings.checkpoint), settings.name)
    elif data_source == "oncelog.table":
        table = read_settings(Options(options, TABLE_SINK))
        check_streaming(table)
        check_columns(table.write, columns_of(columns))


def check_at_start() -> None:
    """From now on, in this process."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    plain = DataStreamWriter.start
    if hasattr(plain, "_checks_sinks"):
        return

    @functools.wraps(plain)
    def start(writer: Any, *arguments: Any, **named: Any) -> Any:
        given = {**dict(zip(PARAMETERS, arguments, strict=False)), **named}
        found = _sink_of(writer, given)
        if found is not None:
            check_sink(*found, writer._df.dtypes)
        return plain(writer, *arguments, **named)

    start._checks_sinks = True  # type: ignore[attr-defined]
    setattr(DataStreamWriter, "start", start)  # noqa: B010


def _sink_of(writer: Any, given: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The format and the options, which only Spark's own object has, and tells nobody. None if it is not as it was when
    this was written."""
    try:
        java = writer._jwrite
        options = _field(java, "extraOptions").toMap()
        pairs = writer._spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(options)
        found = {str(key): str(pairs[key]) for key in pairs}
        data_source = given.get("format") or _field(java, "source")
    except Exception as error:
        logger.debug("the sink is not checked before its first batch: %s", error)
        return None
    found |= {key: _text(one) for key, one in given.items() if key not in PARAMETERS and one is not None}
    return str(data_source), found


def _field(java: Any, name: str) -> Any:
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
