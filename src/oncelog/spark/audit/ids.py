"""The ids that records carry, as columns: the rules of `oncelog.audit.ids` in Spark's own expressions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from oncelog.audit.ids import ID_HEADER, MAX_ID_BYTES, MAX_NUMBER_DIGITS

DIGITS = "0123456789"


def with_ids(records: DataFrame) -> DataFrame:
    """Of records with value and headers: partition, offset, stream and number; both null where there is no id.

    One step for each name: what is used twice is not computed twice, as it would be within one expression."""
    place = ["partition", "offset"]
    return (
        records.select(*place, _text().alias("text"))
        # One byte more than an id may have: then an id that is too long is seen to be so.
        .select(*place, F.substring("text", 1, MAX_ID_BYTES + 1).cast("string").alias("head"))
        .select(*place, F.substring_index("head", " ", 1).alias("whole"))
        .select(*place, "whole", F.substring_index("whole", "/", -1).alias("digits"))
        .select(*place, "whole", "digits", _is_id().alias("is_id"))
        .select(
            *place, F.when(F.col("is_id"), _stream()).alias("stream"), F.when(F.col("is_id"), _number()).alias("number")
        )
    )


def _text() -> Column:
    """The first header of that name which has a value counts even if it holds no id; else the record's value."""
    named = F.filter("headers", lambda header: (header["key"] == ID_HEADER) & header["value"].isNotNull())
    return F.coalesce(F.get(named, F.lit(0))["value"], F.col("value"))


def _is_id() -> Column:
    return (
        (F.octet_length("whole") <= MAX_ID_BYTES)
        & (F.length("whole") > F.length("digits") + 1)
        & F.length("digits").between(1, MAX_NUMBER_DIGITS)
        & (F.translate("digits", DIGITS, "") == "")
        & F.is_valid_utf8("whole")
    )


def _stream() -> Column:
    return F.substring("whole", F.lit(1), F.length("whole") - F.length("digits") - 1)


def _number() -> Column:
    return F.col("digits").try_cast("bigint")
