"""Avro in value columns, without a JAR: fastavro in Arrow functions. Owns the bytes of a value, plain or framed.

A framed value is Confluent's: a zero byte, the schema's id as four bytes, most significant first, then the record.
Values are worked on one Arrow batch at a time, so memory is that of `spark.sql.execution.arrow.maxRecordsPerBatch`.
"""

from __future__ import annotations

import importlib.util
import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from oncelog.spark.tools.avro_schema import Schema, parse_schema, spark_type
from oncelog.spark.tools.columns import HELPER, BadArgument, fields_of, named, nearest, quoted, typed_field
from oncelog.spark.tools.decoding import checked_names, delivered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FRAME: Final = struct.Struct(">BI")
MAGIC: Final = 0
DECODED: Final = HELPER + "decoded"
MAX_SCHEMA_ID: Final = 2**32 - 1


def decode_avro(
    df: DataFrame,
    schema: Schema,
    *,
    writer_schemas: Mapping[int, Schema] | None = None,
    value: str = "value",
    into: str = "data",
    on_error: str = "fail",
    error: str = "error",
) -> DataFrame:
    """The Avro records of the column `value` as a new struct column `into`.

        decode_avro(stream, ORDER)                                                # plain: nothing but the record
        decode_avro(stream, ORDER_V2, writer_schemas={17: ORDER_V1, 23: ORDER_V2})       # with a schema's id in front

    `schema` (a record, as JSON text or a dict) is what the column looks like. With `writer_schemas` values are framed
    as Confluent's serializers do, each was written by the schema that its id names, and fields are matched by Avro's
    rules for readers and writers. What cannot be read (an id that is not among them, too few or too many bytes) is
    treated as `on_error` says; see `decode_json`. A null stays a null. Needs fastavro: `pip install 'oncelog[avro]'`.
    """
    _check_installed()
    reader = parse_schema(schema)
    writers = None if writer_schemas is None else {
        _schema_id(one): parse_schema(text, f"the schema {one}") for one, text in writer_schemas.items()
    }  # fmt: skip
    kind = spark_type(reader)
    source = typed_field(df.schema, value, "value", (BinaryType,), "binary").name
    checked_names(df.schema, into, on_error, error)
    answer = StructType([StructField("data", kind), StructField("error", StringType())])
    # Said to be nondeterministic so that Spark does not decode once more for every filter that looks at the outcome.
    decode = arrow_udf(_decoder(reader, writers, answer), answer).asNondeterministic()  # type: ignore[call-overload]
    column = F.col(quoted(source))
    decoded = df.withColumn(DECODED, decode(column))
    outcome = F.col(DECODED)
    return delivered(
        decoded, outcome.getField("data"), outcome.getField("error"),
        into=into, on_error=on_error, error=error, missing=column.isNull(),
    ).drop(DECODED)  # fmt: skip


def encode_avro(
    df: DataFrame,
    columns: str | Sequence[str],
    schema: Schema,
    *,
    schema_id: int | None = None,
    into: str = "value",
) -> DataFrame:
    """A binary column `into` with the given columns as an Avro record; one struct column stands for its fields.

        encode_avro(orders, ["id", "amount"], ORDER)
        encode_avro(orders, "data", ORDER, schema_id=17)                          # framed as Confluent's readers expect

    Columns and the schema's fields are matched by name; a field that has no column needs a default. A row that does not
    fit the schema (a null where it allows none) stops the query. A struct that is null becomes a null value, a
    tombstone.
    """
    _check_installed()
    writer = parse_schema(schema)
    spark_type(writer)
    fields = fields_of(df.schema, named(columns, "columns"), "columns")
    is_struct = isinstance(columns, str) and isinstance(fields[0].dataType, StructType)
    inner = fields[0].dataType if is_struct else StructType(fields)
    assert isinstance(inner, StructType)
    _check_fields(writer, inner)
    frame = b"" if schema_id is None else FRAME.pack(MAGIC, _schema_id(schema_id))
    encode = arrow_udf(_encoder(writer, frame), BinaryType())  # type: ignore[call-overload]
    names = [F.col(quoted(field.name)) for field in fields]
    return df.withColumn(into, encode(names[0] if is_struct else F.struct(*names)))


def _decoder(
    reader: Schema, writers: Mapping[int, Schema] | None, answer: StructType
) -> Callable[[pa.Array], pa.Array]:
    def decode(values: pa.Array) -> pa.Array:
        from pyspark.sql.pandas.types import to_arrow_type

        read = record_reader(reader, writers)
        rows = [read(value) for value in values.to_pylist()]
        return pa.array(rows, to_arrow_type(answer, timezone="UTC"))

    return decode


def _encoder(writer: Schema, frame: bytes) -> Callable[[pa.Array], pa.Array]:
    def encode(records: pa.Array) -> pa.Array:
        write = record_writer(writer, frame)
        return pa.array([write(record) for record in records.to_pylist(maps_as_pydicts="strict")], pa.binary())

    return encode


def record_reader(
    reader: Schema, writers: Mapping[int, Schema] | None
) -> Callable[[bytes | None], dict[str, Any] | None]:
    """Turns a value into its record, or into what is wrong with it; a null into nothing."""
    import fastavro

    parsed = fastavro.parse_schema(reader)
    by_id = None if writers is None else {one: fastavro.parse_schema(schema) for one, schema in writers.items()}

    def read(value: bytes | None) -> dict[str, Any] | None:
        if value is None:
            return None
        try:
            start, writer = (0, parsed) if by_id is None else _unframed(value, by_id)
            body = io.BytesIO(value)
            body.seek(start)
            record = fastavro.schemaless_reader(body, writer, None if writer is parsed else parsed)
            if body.tell() != len(value):
                raise ValueError(f"{len(value) - body.tell()} bytes are left over after the record")
        except Exception as problem:
            return {"data": None, "error": f"not Avro of the schema: {str(problem) or type(problem).__name__}"}
        return {"data": record, "error": None}

    return read


def record_writer(writer: Schema, frame: bytes) -> Callable[[dict[str, Any] | None], bytes | None]:
    import fastavro

    parsed = fastavro.parse_schema(writer)

    def write(record: dict[str, Any] | None) -> bytes | None:
        if record is None:
            return None
        out = io.BytesIO()
        out.write(frame)
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()

    return write


def _unframed(value: bytes, by_id: Mapping[int, Schema]) -> tuple[int, Schema]:
    if len(value) < FRAME.size or value[0] != MAGIC:
        raise ValueError("no schema id in front: a framed value begins with a zero byte and four bytes of id")
    schema_id = FRAME.unpack_from(value)[1]
    if schema_id not in by_id:
        raise ValueError(f"written by schema {schema_id}, which is not among {', '.join(map(str, sorted(by_id)))}")
    return FRAME.size, by_id[schema_id]


def _schema_id(value: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= MAX_SCHEMA_ID:
        raise BadArgument(f"a schema id is a whole number from 0 to {MAX_SCHEMA_ID}, not {value!r}")
    return value


def _check_fields(writer: Mapping[str, Any], columns: StructType) -> None:
    wanted = {field["name"]: field for field in writer["fields"]}
    for name, field in wanted.items():
        if name not in columns.names and "default" not in field:
            raise BadArgument(f"the schema's field {name!r} has no column and no default{nearest(name, columns.names)}")
    for name in columns.names:
        if name not in wanted:
            raise BadArgument(f"the column {name!r} is not in the schema{nearest(name, list(wanted))}")


def _check_installed() -> None:
    if importlib.util.find_spec("fastavro") is None:
        raise BadArgument("Avro needs the package fastavro: pip install 'oncelog[avro]'")
