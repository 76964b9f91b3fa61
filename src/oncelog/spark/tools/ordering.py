"""Rows with versions: the latest of each key, and only those that are news. Owns how Spark runs the rule of `versions`.

Batches are windows over the whole table. Streams keep the highest version of each key in Spark's state
(`transformWithState`), so a restart from the checkpoint goes on with what it knew. What `reject_out_of_order` lets
through is the same for the same rows, in a batch or a stream, wherever micro-batches begin and end.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, DateType, StringType, StructField, StructType
from pyspark.sql.window import Window

from oncelog.spark.tools.columns import (
    EVENT_TIMES,
    HELPER,
    VERSIONS,
    WHOLE_NUMBERS,
    BadArgument,
    fields_of,
    free_name,
    milliseconds,
    named,
    quoted,
    typed_field,
    watermark_ms,
)
from oncelog.spark.tools.versions import Arrival, Highest, judge, latest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKETS: Final = 256
"""Into how many pieces of state the keys of a stream are divided. Part of every checkpoint: it can never change."""
STATE: Final = StructType([StructField("highest", StringType())])
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

KEY, VERSION, TIME, BUCKET = (HELPER + name for name in ("key", "version", "time", "bucket"))
RANK, BEFORE = HELPER + "rank", HELPER + "before"


def latest_version(
    df: DataFrame,
    key: str | Sequence[str],
    version: str,
    *,
    order: str | Sequence[str] = "offset",
    event_time: str | None = None,
    forget_after: str | None = None,
) -> DataFrame:
    """The row with the highest `version` of each `key`; of equal versions the first by `order`.

        current = latest_version(changes, "customer_id", "version")

    A batch gives one row for each key. A stream cannot take back what it has written, so it gives news: in each
    micro-batch at most one row for each key, and only if its version is higher than all before. The last row of a key
    is always its latest; upsert the stream by key into a table and the table holds the latest of each (the sink
    `oncelog.table` with `key` and `version` does that).

    Rows without a key or a version have no place in this and are left out: send them to a dead-letter topic first.
    What a stream needs, and how its state is bounded, is said at `reject_out_of_order`.
    """
    ask = _Question(df, key, version, order, event_time, forget_after)
    if df.isStreaming:
        return ask.of_stream(_Latest)
    best = Window.partitionBy(*ask.keys).orderBy(ask.version.desc(), *ask.order)
    return df.where(ask.comparable).withColumn(RANK, F.row_number().over(best)).where(F.col(RANK) == 1).drop(RANK)


def reject_out_of_order(
    df: DataFrame,
    key: str | Sequence[str],
    version: str,
    *,
    order: str | Sequence[str] = "offset",
    flag: str | None = None,
    event_time: str | None = None,
    forget_after: str | None = None,
) -> DataFrame:
    """Only rows whose `version` is higher than every earlier one of their `key`, by `order`.

        news = reject_out_of_order(changes, "customer_id", "version")
        judged = reject_out_of_order(changes, "customer_id", "version", flag="stale")
        good, bad = dead_letter_split(judged, "not stale", error="an older version came after a newer one")

    `order` says which row came first: the offset, if all rows of a key are in one partition, as they are when the
    records have that key. With `flag` all rows stay, and this new column is true for those that would be left out. Rows
    without a key or a version cannot be compared, and count as out of order.

    A stream needs the RocksDB state store (the error tells the setting), pandas and protobuf (`oncelog[state]`). It
    remembers one number for each key. Where keys have no end, `forget_after="30 days"` with `event_time` lets it forget
    keys without news for so long; rows that are later than that are then left out by Spark, which counts them.
    """
    ask = _Question(df, key, version, order, event_time, forget_after)
    if flag is not None:
        free_name(df.schema, flag, "flag")
    if df.isStreaming:
        return ask.of_stream(_News, flag)
    earlier = Window.partitionBy(*ask.keys).orderBy(*ask.order).rowsBetween(Window.unboundedPreceding, -1)
    highest = F.max(F.when(ask.comparable, ask.version)).over(earlier)
    is_news = ask.comparable & (F.col(BEFORE).isNull() | (ask.version > F.col(BEFORE)))
    judged = df.withColumn(BEFORE, highest)
    return (judged.where(is_news) if flag is None else judged.withColumn(flag, ~is_news)).drop(BEFORE)


class _Question:
    """The checked arguments of both, as columns."""

    def __init__(
        self,
        df: DataFrame,
        key: str | Sequence[str],
        version: str,
        order: str | Sequence[str],
        event_time: str | None,
        forget_after: str | None,
    ) -> None:
        self._df = df
        schema = df.schema
        self.keys = [F.col(quoted(field.name)) for field in fields_of(schema, named(key, "key"), "key")]
        field = typed_field(schema, version, "version", VERSIONS, "a whole number, a date or a timestamp")
        self.version = F.col(quoted(field.name))
        self._number = _as_number(field)
        self._order = [field.name for field in fields_of(schema, named(order, "order"), "order")]
        self.order = [F.col(quoted(name)).asc_nulls_first() for name in self._order]
        self.comparable = self.version.isNotNull()
        for one in self.keys:
            self.comparable = self.comparable & one.isNotNull()
        if (event_time is None) != (forget_after is None):
            raise BadArgument(
                "event_time and forget_after belong together: keys are forgotten by the time of their rows"
            )
        self._time = None
        if event_time is not None and forget_after is not None:
            self._time = typed_field(schema, event_time, "event_time", EVENT_TIMES, "a timestamp").name
            self._forget_ms = milliseconds(forget_after, "forget_after")

    def of_stream(self, rule: type[_Rule], flag: str | None = None) -> DataFrame:
        _check_session(self._df)
        rows, output = self._df, self._df.schema
        if self._time is not None and watermark_ms(rows.schema, self._time) is None:
            rows = rows.withWatermark(self._time, f"{self._forget_ms} milliseconds")
        if flag is not None:
            rows = rows.withColumn(flag, F.lit(False))
            output = StructType([*output.fields, StructField(flag, BooleanType())])
        time = F.lit(0) if self._time is None else F.unix_millis(F.col(quoted(self._time)).cast("timestamp"))
        rows = rows.withColumns(
            {
                KEY: F.when(self.comparable, F.to_json(F.struct(*self.keys))),
                VERSION: self._number,
                TIME: time.cast("long"),
                BUCKET: F.pmod(F.xxhash64(*self.keys), F.lit(BUCKETS)).cast("int"),
            }
        )
        mode = "None" if self._time is None else "EventTime"
        return rows.groupBy(BUCKET).transformWithState(
            rule(tuple(self._order), flag), output, "Append", mode, eventTimeColumnName=self._time or ""
        )


class _Rule(StatefulProcessor):
    """One bucket of keys. The order of rows is not kept on the way here, so they are put in order again."""

    def __init__(self, order: tuple[str, ...], flag: str | None) -> None:
        self._order = order
        self._flag = flag

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("highest", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        stored = self._state.get()
        highest = Highest.parse(stored[0] if stored else None)
        ordered = sorted(rows, key=lambda row: tuple((row[name] is not None, row[name]) for name in self._order))
        yield from self._pass(ordered, highest)
        highest.forget_before(timerValues.getCurrentWatermarkInMs())
        if highest.changed:
            self._state.update((highest.dump(),))

    def close(self) -> None:
        """Spark wants to be able to say it."""

    def _pass(self, rows: list[Row], highest: Highest) -> Iterator[Row]:
        raise NotImplementedError


class _Latest(_Rule):
    def _pass(self, rows: list[Row], highest: Highest) -> Iterator[Row]:
        yield from latest(map(_arrival, rows), highest)


class _News(_Rule):
    def _pass(self, rows: list[Row], highest: Highest) -> Iterator[Row]:
        for row, is_news in judge(map(_arrival, rows), highest):
            if is_news:
                yield row
            elif self._flag is not None:
                yield Row(**{**row.asDict(), self._flag: True})


def _arrival(row: Row) -> Arrival:
    return Arrival(row[KEY], row[VERSION], row[TIME], row)


def _as_number(field: StructField) -> Column:
    """A version as a whole number that is ordered alike."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, WHOLE_NUMBERS):
        return column.cast("long")
    return (
        F.unix_date(column).cast("long")
        if isinstance(field.dataType, DateType)
        else F.unix_micros(column.cast("timestamp"))
    )


def _check_session(df: DataFrame) -> None:
    for module in ("pandas", "google.protobuf"):
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise BadArgument(f"state of a stream needs {module}: pip install 'oncelog[state]'")
    provider = df.sparkSession.conf.get(PROVIDER)
    if provider != ROCKSDB:
        raise BadArgument(
            f"state of a stream needs the RocksDB state store: spark.conf.set({PROVIDER!r}, {ROCKSDB!r}) before this"
        )
