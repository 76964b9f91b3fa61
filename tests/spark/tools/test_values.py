"""JSON and Avro values through Spark: what can be read, what cannot, and what a dead letter carries."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from oncelog.spark.tools import BadArgument, dead_letter_split, decode_avro, decode_json, encode_avro, encode_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = "array<struct<key string, value binary>>"
RECORDS = f"key binary, value binary, topic string, partition int, offset long, headers {HEADERS}"
SCHEMA = "id long not null, name string, paid decimal(10,2)"

READABLE = {
    b'{"id": 1, "name": "a", "paid": 1.50}': (1, "a", Decimal("1.50")),
    b' {"id": 2, "more": [1, {"x": "}"}]} \n': (2, None, None),
    '{"id": 3, "name": "z\u00fcrich"}'.encode(): (3, "zürich", None),
}
UNREADABLE = {
    b"": "not a JSON object",
    b"null": "not a JSON object",
    b'[{"id": 1}]': "not a JSON object",
    b'{"id": 1} junk': "not a JSON object",
    b'{"id": 1}, "more": {"id": 2}': "not one JSON object",
    b'{"id": 1}, "value": {"id": 2}': "not one JSON object",
    b'{"id": 1': "not a JSON object",
    b'{"id": "one"}': "not JSON of struct<id:bigint,name:string,paid:decimal(10,2)>",
    b'{"id": 1, }': "not JSON of struct<id:bigint,name:string,paid:decimal(10,2)>",
    b'{"id": 1}{"id": 2}': "not JSON of struct<id:bigint,name:string,paid:decimal(10,2)>",
    b'{"name": "a"}': "without the field 'id'",
    b'{"id": null}': "without the field 'id'",
    b'{"id": 1, "name": "\xff"}': "not UTF-8",
}


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(b"k%d" % number, value, "in", 0, number, [("mine", b"h")]) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, RECORDS)


def test_json_is_read_or_told_apart(spark: SparkSession) -> None:
    values: list[bytes | None] = [*READABLE, *UNREADABLE, None]
    decoded = decode_json(records(spark, values), SCHEMA, on_error="keep").cache()
    found = [(row.data and tuple(row.data), row.error) for row in decoded.orderBy("offset").collect()]
    assert found == [
        *((data, None) for data in READABLE.values()),
        *((None, error) for error in UNREADABLE.values()),
        (None, None),  # a tombstone is no error
    ]
    good, bad = dead_letter_split(decoded)
    assert "error" not in good.columns
    assert sorted(row.offset for row in good.select("offset").collect()) == [0, 1, 2, len(values) - 1]
    letters = bad.orderBy("source_offset").collect()
    assert [bytes(row.value) for row in letters] == list(UNREADABLE)
    assert [row.error for row in letters] == list(UNREADABLE.values())
    first = letters[0]
    assert (bytes(first.key), first.source_topic, first.source_partition, first.source_offset) == (b"k3", "in", 0, 3)
    assert [(name, bytes(value)) for name, value in first.headers] == [
        ("mine", b"h"),
        ("dead-letter.topic", b"in"),
        ("dead-letter.partition", b"0"),
        ("dead-letter.offset", b"3"),
        ("dead-letter.error", b"not a JSON object"),
    ]
    assert not {"topic", "partition"} & set(bad.columns)
    decoded.unpersist()

    quiet = decode_json(records(spark, [b"junk", b'{"id": 7}']), SCHEMA, on_error="null")
    assert [row.data and row.data.id for row in quiet.collect()] == [None, 7]
    assert "error" not in quiet.columns
    with pytest.raises(PySparkException, match="cannot be decoded: not a JSON object, topic in, partition 0, offset 1"):
        decode_json(records(spark, [b'{"id": 7}', b"junk"]), SCHEMA).collect()


def test_json_is_written_with_nulls_and_tombstones(spark: SparkSession) -> None:
    decoded = decode_json(records(spark, [b'{"id": 1}', None]), SCHEMA)
    rows = encode_json(decoded, "data", into="out").orderBy("offset").collect()
    assert json.loads(rows[0].out) == {"id": 1, "name": None, "paid": None}
    assert rows[1].out is None
    rows = encode_json(decoded, ["partition", "offset"]).orderBy("offset").collect()
    assert [json.loads(row.value) for row in rows] == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]


def test_a_condition_splits_every_row_into_one_side(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 1), ("b", -1), ("c", None)], "value string, amount int")
    good, bad = dead_letter_split(rows, "amount > 0", error="the amount is not above 0")
    assert [tuple(row) for row in good.collect()] == [("a", 1)]
    assert [(row.value, row.error) for row in bad.collect()] == [
        ("b", "the amount is not above 0"),
        ("c", "the amount is not above 0"),
    ]
    with pytest.raises(BadArgument, match="needs a condition, or a column 'error'"):
        dead_letter_split(rows)


ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "place",
            "type": ["null", {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]}],
        },
        {"name": "other", "type": ["null", "Place"]},
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC)
TRACE = "2b1e6d6e-9d6a-4d57-9b1c-1a5b6d0f8a11"
ROW = (7, None, AT, AT.date(), Decimal("12.34"), "NEW", ["a", "b"], {"n": 1}, (1.5,), None, TRACE)


def plain_of(row: Any) -> tuple[Any, ...]:
    values = list(row)
    values[2] = values[2].astimezone(dt.UTC) if values[2].tzinfo else values[2]
    return tuple(tuple(value) if hasattr(value, "asDict") else value for value in values)


def test_avro_comes_back_as_it_was_and_old_writers_are_understood(spark: SparkSession) -> None:
    from oncelog.spark.tools.avro_schema import spark_type

    before = spark.createDataFrame([(ROW,)], "data struct<" + spark_type(ORDER).simpleString().removeprefix("struct<"))
    plain = encode_avro(before, "data", ORDER)
    (row,) = decode_avro(plain.select("value"), json.dumps(ORDER)).collect()
    (original,) = before.collect()
    assert row.data == original.data

    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "item", "type": "string", "default": "?"}]}
    ids = spark.createDataFrame([(1,), (2,)], "id long")
    framed = encode_avro(ids, ["id"], old, schema_id=17).select("value").collect()
    assert bytes(framed[0].value) == b"\0" + struct.pack(">I", 17) + b"\x02"
    values: list[bytes | None] = [
        *(bytes(one.value) for one in framed),
        b"\0" + struct.pack(">I", 18) + b"\x06\x02b",
        b"\0" + struct.pack(">I", 99) + b"\x02",
        b"\x02",
        bytes(framed[0].value) + b"!",
        b"\0" + struct.pack(">I", 18) + b"\x06",
        None,
    ]
    decoded = decode_avro(records(spark, values), new, writer_schemas={17: old, 18: new}, on_error="keep")
    good, bad = dead_letter_split(decoded)
    assert [row.data and tuple(row.data) for row in good.orderBy("offset").collect()] == [
        (1, "?"),
        (2, "?"),
        (3, "b"),
        None,
    ]
    errors = [row.error.removeprefix("not Avro of the schema: ") for row in bad.orderBy("source_offset").collect()]
    assert errors[0] == "written by schema 99, which is not among 17, 18"
    assert errors[1].startswith("no schema id in front")
    assert errors[2] == "1 bytes are left over after the record"
    assert len(errors) == 4
