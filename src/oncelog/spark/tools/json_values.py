"""JSON in value columns, by Spark's own parser. Owns what counts as a value that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from oncelog.spark.tools.columns import HELPER, BadArgument, fields_of, named, quoted, typed_field
from oncelog.spark.tools.decoding import checked_names, delivered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INNER: Final = "value"
BAD_TEXT: Final = HELPER + "bad_text"
"""The field into which Spark puts the text that it could not read."""


def decode_json(
    df: DataFrame,
    schema: StructType | str,
    *,
    value: str = "value",
    into: str = "data",
    on_error: str = "fail",
    error: str = "error",
) -> DataFrame:
    """The JSON objects of the column `value` as a new struct column `into`, of the given schema.

        orders = decode_json(stream, "id long not null, item string, amount decimal(10,2)").select("data.*", "offset")

    A value that is not UTF-8, not one JSON object, of other types than the schema's, or without a field that the schema
    calls `not null`, cannot be read. `on_error` says what happens then:

    - "fail": the query stops, and the error says where the value was.
    - "null": `into` is null, and nothing else happens.
    - "keep": `into` is null, and a new column `error` says what is wrong (null for all others), as `dead_letter_split`
      wants it.

    A null stays a null and is no error: in a compacted topic it means that the key is gone. Fields that the schema does
    not name are ignored.
    """
    fields = schema if isinstance(schema, StructType) else _parsed(schema)
    source = typed_field(df.schema, value, "value", (BinaryType, StringType), "binary or string")
    checked_names(df.schema, into, on_error, error)
    column = F.col(quoted(source.name))
    text = column.cast("string")
    # Spark reads the first object of a text and takes no notice of what follows it; inside another object it has to.
    outer = StructType([StructField(INNER, fields), StructField(BAD_TEXT, StringType())])
    wrapped = F.concat(F.lit(f'{{"{INNER}":'), text, F.lit("}"))
    read = F.from_json(wrapped, outer, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD_TEXT})
    wrong, missing = _complaint(column, text, wrapped, read, fields), column.isNull()
    return delivered(df, read.getField(INNER), wrong, into=into, on_error=on_error, error=error, missing=missing)


def encode_json(df: DataFrame, columns: str | Sequence[str], *, into: str = "value") -> DataFrame:
    """A binary column `into` with the given columns as a JSON object; one struct column stands for its fields.

        encode_json(totals, ["customer_id", "total"])        # {"customer_id":7,"total":19.90}
        encode_json(orders, "data")                          # the fields of data

    Nulls are written out, so that a reader can tell "nothing" from "not there". A struct that is null becomes a null
    value: a tombstone. A column that is called `into` already is replaced.
    """
    fields = fields_of(df.schema, named(columns, "columns"), "columns")
    is_struct = isinstance(columns, str) and isinstance(fields[0].dataType, StructType)
    if isinstance(columns, str) and not is_struct:
        raise BadArgument(
            f"columns {columns!r} is {fields[0].dataType.simpleString()}: give a struct, or a list of columns such as "
            f"[{columns!r}]"
        )
    names = [F.col(quoted(field.name)) for field in fields]
    text = F.to_json(names[0] if is_struct else F.struct(*names), {"ignoreNullFields": "false"})
    return df.withColumn(into, text.cast("binary"))


def _parsed(schema: str) -> StructType:
    try:
        found = StructType.fromDDL(schema)
    except ParseException as problem:
        raise BadArgument(f"the schema {schema!r} cannot be read: {str(problem).splitlines()[0]}") from problem
    if not isinstance(found, StructType):
        raise BadArgument(f"the schema {schema!r} has no names: write it as 'id long not null, amount double'")
    return found


def _complaint(column: Column, text: Column, wrapped: Column, read: Column, fields: StructType) -> Column:
    """What is wrong with a value, or null."""
    wrong = F.when(~F.is_valid_utf8(text), F.lit("not UTF-8"))
    wrong = wrong.when(~text.rlike(r"(?s)^\s*\{.*\}\s*$"), F.lit("not a JSON object"))
    is_more = F.size(F.json_object_keys(wrapped)) != 1  # {...},"more":{...} would add a field to the outer object
    wrong = wrong.when(is_more, F.lit("not one JSON object"))
    inner = read.getField(INNER)
    is_unlike = inner.isNull() | read.getField(BAD_TEXT).isNotNull()
    wrong = wrong.when(is_unlike, F.lit(f"not JSON of {fields.simpleString()}"))
    for field in fields.fields:
        if not field.nullable:
            wrong = wrong.when(inner.getField(field.name).isNull(), F.lit(f"without the field {field.name!r}"))
    return F.when(column.isNotNull(), wrong)
