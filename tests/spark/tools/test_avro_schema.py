"""Avro schemas as Spark's types, and the bytes of single values. No Spark runs here."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.spark.tools.avro_schema import parse_schema, spark_type
from oncelog.spark.tools.avro_values import record_reader, record_writer
from oncelog.spark.tools.columns import BadArgument


def record(*types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": one} for n, one in enumerate(types)]}


@pytest.mark.parametrize(
    ("avro", "spark"),
    [
        ("int", "int"),
        (["null", "double"], "double"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 99}, "binary"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary"),
        ({"type": "array", "items": ["null", "string"]}, "array<string>"),
        ({"type": "map", "values": {"type": "array", "items": "long"}}, "map<string,array<bigint>>"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "string"}, "string"),
    ],
)
def test_types(avro: Any, spark: str) -> None:
    assert spark_type(parse_schema(record(avro))).simpleString() == f"struct<f0:{spark}>"


def test_only_unions_with_null_may_be_null() -> None:
    fields = spark_type(parse_schema(record("int", ["null", "int"]))).fields
    assert [field.nullable for field in fields] == [False, True]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(["int", "string"]), "field 'f0' is a union of 2 types beside null"),
        (record(["null", "R"]), "field 'f0' contains 'R', which contains it"),
        (record("Nobody"), "field 'f0' has the type 'Nobody', which was not defined"),
        ("{", "schema is not JSON"),
        ('"string"', "schema must be an Avro record"),
        ({"type": "record", "name": "R"}, "a record without a name or without fields"),
    ],
)
def test_what_has_no_type_in_spark(schema: Any, message: str) -> None:
    with pytest.raises(BadArgument) as caught:
        spark_type(parse_schema(schema))
    assert message in str(caught.value)


def test_a_value_is_read_whole_or_not_at_all() -> None:
    schema = record("long", "string")
    value = record_writer(schema, b"")({"f0": 5, "f1": "x"})
    assert value == b"\x0a\x02x"
    read = record_reader(schema, None)
    assert read(value) == {"data": {"f0": 5, "f1": "x"}, "error": None}
    assert read(None) is None
    for wrong in (b"", value[:-1], value + b"\0"):
        answer = read(wrong)
        assert answer is not None
        assert answer["data"] is None
        assert answer["error"].startswith("not Avro of the schema")
