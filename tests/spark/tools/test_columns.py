"""What the tools say about arguments that cannot be right. No Spark runs here."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from oncelog.spark.tools import columns
from oncelog.spark.tools.columns import BadArgument

SCHEMA = StructType(
    [
        StructField("order_id", LongType()),
        StructField("At", TimestampType(), True, {"spark.watermarkDelayMs": 5_000}),
        StructField("data", StructType([StructField("id", LongType())])),
        StructField("twice", StringType()),
        StructField("TWICE", StringType()),
    ]
)


def test_a_column_is_found_whatever_its_case() -> None:
    assert columns.field_of(SCHEMA, "at", "event_time").name == "At"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("oder_id", "ids: there is no column 'oder_id'; did you mean 'order_id'?"),
        ("zzz", "ids: there is no column 'zzz'; there are order_id, At, data, twice, TWICE"),
        ("data.id", "a field inside the column 'data': make it a column first"),
        ("twice", "several columns are called so"),
    ],
)
def test_a_column_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(BadArgument) as caught:
        columns.field_of(SCHEMA, name, "ids")
    assert message in str(caught.value)


def test_a_column_of_another_type() -> None:
    with pytest.raises(BadArgument, match="event_time 'order_id' is bigint; it must be a timestamp"):
        columns.typed_field(SCHEMA, "order_id", "event_time", columns.EVENT_TIMES, "a timestamp")


def test_names_are_one_or_several_each_once() -> None:
    assert columns.named("a", "key") == ("a",)
    assert columns.named(["a", "b"], "key") == ("a", "b")
    for wrong in ([], "", ["a", ""], ["a", "a"], [1]):
        with pytest.raises(BadArgument, match="key"):
            columns.named(wrong, "key")  # type: ignore[arg-type]


def test_a_new_column_hides_none() -> None:
    assert columns.free_name(SCHEMA, "error", "error") == "error"
    with pytest.raises(BadArgument, match="would be called 'AT'"):
        columns.free_name(SCHEMA, "AT", "into")


def test_choices_name_the_nearest() -> None:
    with pytest.raises(BadArgument, match="did you mean 'keep'"):
        columns.one_of("keeep", ("drop", "keep"), "null_ids")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1 hour", 3_600_000), ("90 seconds", 90_000), (" 2 Days ", 172_800_000), ("5minutes", 300_000), ("1 ms", None),
     ("0 hours", None), ("hour", None), ("-1 hour", None), ("1 hour 5 minutes", None), ("", None)],
)  # fmt: skip
def test_lengths_of_time(text: str, expected: int | None) -> None:
    if expected is not None:
        assert columns.milliseconds(text, "within") == expected
        return
    with pytest.raises(BadArgument, match="within is a length of time such as"):
        columns.milliseconds(text, "within")


def test_a_watermark_is_read_from_the_column() -> None:
    assert columns.watermark_ms(SCHEMA, "At") == 5_000
    assert columns.watermark_ms(SCHEMA, "order_id") is None


def test_names_are_quoted_for_spark() -> None:
    assert columns.quoted("a.b`c") == "`a.b``c`"
