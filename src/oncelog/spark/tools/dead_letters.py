"""Rows that cannot be processed, as records for a topic of their own. Owns what such a record carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DataType, StringType

from oncelog.spark.tools.columns import BadArgument, quoted, typed_field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

HEADER: Final = "dead-letter."
"""Headers that a dead letter has beside its own begin like this; the names of columns follow."""
ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
RECORD: Final[tuple[type[DataType], ...]] = (BinaryType, StringType)
UNNAMED: Final = "the condition was not met"


def dead_letter_split(
    df: DataFrame, ok: Column | str | None = None, *, error: Column | str | None = None, value: str = "value"
) -> tuple[DataFrame, DataFrame]:
    """The rows that are well, as they are, and the others as records for a dead-letter topic.

        decoded = decode_json(stream, "id long not null, amount double", on_error="keep")
        good, bad = dead_letter_split(decoded)                                   # by the column `error`
        good, bad = dead_letter_split(orders, "amount > 0", error="the amount is not above 0")

    `ok` is a condition (a null counts as false); without one, the column `error` must be null. `error` is why a row is
    bad: a text or a column of text. Every row is in exactly one of the two, if `ok` always gives the same answer.

    A dead letter is the record as it came (key, value, headers), with headers that tell where it was and what is wrong:
    dead-letter.topic, .partition, .offset, .timestamp and .error, all text. The same stands in the columns
    source_topic, source_partition, source_offset, source_timestamp and error, of which a sink of topics takes no
    notice; `topic` and `partition` are left out, because they would send the letter back to where it came from.
    """
    record = typed_field(df.schema, value, "value", RECORD, "binary or string").name
    if ok is None:
        reason = F.col(quoted(_error_column(df.schema)))
        is_ok = reason.isNull()
    else:
        reason = F.lit(UNNAMED if error is None else error)  # a column stays what it is
        is_ok = F.coalesce(F.expr(ok) if isinstance(ok, str) else ok, F.lit(False))
    good = df.where(is_ok).drop("error") if ok is None else df.where(is_ok)
    return good, _letters(df.where(~is_ok), record, reason)


def _letters(bad: DataFrame, value: str, reason: Column) -> DataFrame:
    origin: dict[str, Column] = {name: F.col(quoted(name)) for name in ORIGIN if name in bad.columns}
    notes: dict[str, Column] = {**origin, "error": reason}
    headers = F.array(
        *(
            F.struct(F.lit(HEADER + name).alias("key"), column.cast("string").cast("binary").alias("value"))
            for name, column in notes.items()
        )
    )
    if "headers" in bad.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(bad.schema["headers"].dataType)), headers)
    kept = [F.col("key")] if "key" in bad.columns else []
    return bad.select(
        *kept,
        F.col(quoted(value)).alias("value"),
        headers.alias("headers"),
        *(column.alias(f"source_{name}") for name, column in origin.items()),
        reason.cast("string").alias("error"),
    )


def _error_column(schema: StructType) -> str:
    try:
        return typed_field(schema, "error", "error", (StringType,), "a string").name
    except BadArgument as problem:
        raise BadArgument(
            "dead_letter_split needs a condition, or a column 'error' as decode_json(..., on_error='keep') makes it"
        ) from problem
