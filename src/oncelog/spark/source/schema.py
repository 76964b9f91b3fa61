"""The columns of the source: those of Spark's own Kafka source, for Spark and for Arrow."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = StructField("headers", ArrayType(_HEADER))

TIMESTAMPS = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


def spark_schema(include_headers: bool) -> StructType:
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


def arrow_schema(include_headers: bool) -> pa.Schema:
    """What Spark makes of `spark_schema`: it takes no batch of any other."""
    columns = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMPS),
        ("timestampType", pa.int32()),
    ]
    return pa.schema([*columns, ("headers", HEADERS)] if include_headers else columns)
