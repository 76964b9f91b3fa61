"""One row for each message id. Owns how long an id is remembered, and what becomes of rows without one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import Window

from oncelog.spark.tools.columns import (
    EVENT_TIMES,
    HELPER,
    BadArgument,
    field_of,
    fields_of,
    milliseconds,
    named,
    one_of,
    quoted,
    typed_field,
    watermark_ms,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION: Final = ("topic", "partition", "offset")
STAND_IN: Final = HELPER + "position"
RANK: Final = HELPER + "rank"


def deduplicate(
    df: DataFrame, ids: str | Sequence[str], event_time: str, within: str = "1 hour", *, null_ids: str = "fail"
) -> DataFrame:
    """One row for each message id, within a window of event time.

        orders = deduplicate(orders, "order_id", "ordered_at", within="2 hours")

    A stream remembers an id until `event_time` has moved on by `within`: rows of one id whose times are less than
    `within` apart become one, the first that arrives. State is bounded by the ids of one window, and is part of the
    checkpoint. Rows that come more than `within` behind the newest are too late to be judged; Spark leaves them out and
    counts them (`numRowsDroppedByWatermark` of a query's progress), so choose `within` as long as a message may take.
    A batch has no such limit: of all rows of an id it keeps the one with the earliest time.

    A row without an id equals no other. `null_ids` says what to do with it: "fail" stops the query, "drop" leaves it
    out, "keep" passes it on (for this the columns topic, partition and offset tell such rows apart).
    """
    id_names = [field.name for field in fields_of(df.schema, named(ids, "ids"), "ids")]
    time = typed_field(df.schema, event_time, "event_time", EVENT_TIMES, "a timestamp").name
    delay_ms = milliseconds(within, "within")
    one_of(null_ids, ("fail", "drop", "keep"), "null_ids")
    keys, rows = _judged(df, id_names, null_ids)
    if df.isStreaming:
        rows = _with_watermark(rows, time, delay_ms).dropDuplicatesWithinWatermark(keys)
    else:
        first = Window.partitionBy(*map(quoted, keys)).orderBy(F.col(quoted(time)).asc_nulls_last())
        rows = rows.withColumn(RANK, F.row_number().over(first)).where(F.col(RANK) == 1).drop(RANK)
    return rows.drop(STAND_IN)


def _judged(df: DataFrame, ids: list[str], null_ids: str) -> tuple[list[str], DataFrame]:
    """What tells rows apart, and the rows to look at."""
    nullable = [name for name in ids if field_of(df.schema, name, "ids").nullable]
    if not nullable:
        return ids, df
    has_id = reduce(and_, (F.col(quoted(name)).isNotNull() for name in nullable))
    if null_ids == "drop":
        return ids, df.where(has_id)
    if null_ids == "fail":
        complaint = F.raise_error(
            f"a row has no message id ({', '.join(ids)}): it cannot be told from another. Set null_ids to 'drop' or "
            "'keep', or send such rows to a dead-letter topic first"
        )
        return ids, df.where(F.when(has_id, F.lit(True)).otherwise(complaint.cast("boolean")))
    missing = [name for name in POSITION if name not in df.columns]
    if missing:
        raise BadArgument(
            f"null_ids='keep' tells rows without an id apart by where they come from, and there is no column "
            f"{missing[0]!r}: keep {', '.join(POSITION)} of the source, or use 'drop' or 'fail'"
        )
    return [*ids, STAND_IN], df.withColumn(STAND_IN, F.when(~has_id, F.struct(*POSITION)))


def _with_watermark(df: DataFrame, time: str, delay_ms: int) -> DataFrame:
    present = watermark_ms(df.schema, time)
    if present is None:
        return df.withWatermark(time, f"{delay_ms} milliseconds")
    if present != delay_ms:
        raise BadArgument(
            f"{time!r} has a watermark of {present} ms already, and within is {delay_ms} ms: a column has one. Leave "
            "the watermark to deduplicate, or give it the same length"
        )
    return df
