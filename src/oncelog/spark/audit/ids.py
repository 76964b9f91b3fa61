"""The ids that records carry, as columns: the rules of `oncelog.audit.ids` in Spark's own expressions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from oncelog.audit.ids import ID_HEADER, MAX_ID_BYTES, MAX_NUMBER_DIGITS

DIGITS = "0123456789"


def with_ids(records: DataFrame) -> DataFrame:
    """Of records with value and headers: partition, offset, stream and number; both null where there is no id."""
    found = records.select("partition", "offset", _parsed(_text()).alias("id"))
    return found.select("partition", "offset", "id.stream", "id.number")


def _text() -> Column:
    """The first header of that name which has a value counts even if it holds no id; else the record's value."""
    named = F.filter("headers", lambda header: (header["key"] == ID_HEADER) & header["value"].isNotNull())
    return F.coalesce(F.get(named, F.lit(0))["value"], F.col("value"))


def _parsed(text: Column) -> Column:
    # One byte more than an id may have: then an id that is too long is seen to be so.
    head = F.substring(text, 1, MAX_ID_BYTES + 1).cast("string")
    whole = F.substring_index(head, " ", 1)
    digits = F.substring_index(whole, "/", -1)
    stream = F.substring(whole, F.lit(1), F.length(whole) - F.length(digits) - 1)
    is_id = (
        (F.octet_length(whole) <= MAX_ID_BYTES)
        & F.is_valid_utf8(whole)
        & F.length(digits).between(1, MAX_NUMBER_DIGITS)
        & (F.translate(digits, DIGITS, "") == "")
        & (F.length(whole) > F.length(digits) + 1)
    )
    return F.when(is_id, F.struct(stream.alias("stream"), digits.try_cast("bigint").alias("number")))
