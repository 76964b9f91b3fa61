"""Avro schemas, and the Spark types that their values have. Pure: knows neither bytes nor DataFrames.

Left out, with an error that says so: unions of more than null and one type, recursive types (Spark has no such types).
Logical types that Spark lacks (times of day, durations, local timestamps aside) arrive as the type under them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import types as T  # noqa: N812

from oncelog.spark.tools.columns import BadArgument

Schema = Any
"""An Avro schema as JSON has it: a name, a list (a union) or a dict."""

PRIMITIVES: Final[Mapping[str, T.DataType]] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
}
LOGICAL: Final[Mapping[tuple[str, str], T.DataType]] = {
    ("int", "date"): T.DateType(),
    ("long", "timestamp-millis"): T.TimestampType(),
    ("long", "timestamp-micros"): T.TimestampType(),
    ("long", "local-timestamp-millis"): T.TimestampNTZType(),
    ("long", "local-timestamp-micros"): T.TimestampNTZType(),
}
MAX_DECIMAL_PRECISION: Final = 38


def parse_schema(schema: Schema, what: str = "schema") -> Schema:
    """From JSON text, or what it was read into. A record, without logical types that mean nothing here."""
    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')):
        try:
            schema = json.loads(schema)
        except ValueError as problem:
            raise BadArgument(f"{what} is not JSON: {problem}") from None
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        raise BadArgument(f"{what} must be an Avro record, as JSON text or a dict, not {str(schema)[:80]!r}")
    return _plain(schema)


def spark_type(schema: Schema) -> T.StructType:
    """The struct that a record's values become."""
    found = _typed(schema, {}, ())
    assert isinstance(found, T.StructType)
    return found


def _plain(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _plain(part) if name in {"type", "items", "values"} else part for name, part in schema.items()}
    if isinstance(schema.get("fields"), list):
        kept["fields"] = [_plain(field) for field in schema["fields"]]
    if "logicalType" in schema and not _is_decimal(schema) and (schema["type"], schema["logicalType"]) not in LOGICAL:
        del kept["logicalType"]
    return kept


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    return schema.get("logicalType") == "decimal" and schema.get("precision", 0) <= MAX_DECIMAL_PRECISION


def _typed(  # noqa: PLR0911 (one for each of Avro's types)
    schema: Schema, names: dict[str, T.DataType | None], path: tuple[str, ...]
) -> T.DataType:
    """`names` are the named types so far; one that is still None is being read, so it contains itself."""
    match schema:
        case list():
            return _union(schema, names, path)[0]
        case str() if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        case str():
            return _known(schema, names, path)
        case {"type": "record"}:
            return _record(schema, names, path)
        case {"type": "enum"}:
            return _remember(schema, names, T.StringType())
        case {"type": "fixed"} if not _is_decimal(schema):
            return _remember(schema, names, T.BinaryType())
        case {"type": "fixed"}:
            return _remember(schema, names, T.DecimalType(schema["precision"], schema.get("scale", 0)))
        case {"type": "array"}:
            return T.ArrayType(*_nullable(schema.get("items"), names, path))
        case {"type": "map"}:
            return T.MapType(T.StringType(), *_nullable(schema.get("values"), names, path))
        case {"type": str() as under} if _is_decimal(schema) and under == "bytes":
            return T.DecimalType(schema["precision"], schema.get("scale", 0))
        case {"type": under}:
            logical = LOGICAL.get((under, schema.get("logicalType", ""))) if isinstance(under, str) else None
            return logical or _typed(under, names, path)
    raise BadArgument(f"the schema's {_place(path)} has the type {schema!r}, which is none of Avro's")


def _record(schema: Mapping[str, Any], names: dict[str, T.DataType | None], path: tuple[str, ...]) -> T.DataType:
    if not isinstance(schema.get("name"), str) or not isinstance(schema.get("fields"), list):
        raise BadArgument(f"the schema's {_place(path)} is a record without a name or without fields")
    for name in _names_of(schema):
        names[name] = None
    fields = []
    for field in schema["fields"]:
        kind, nullable = _nullable(field.get("type"), names, (*path, field["name"]))
        fields.append(T.StructField(field["name"], kind, nullable))
    return _remember(schema, names, T.StructType(fields))


def _nullable(schema: Schema, names: dict[str, T.DataType | None], path: tuple[str, ...]) -> tuple[T.DataType, bool]:
    return _union(schema, names, path) if isinstance(schema, list) else (_typed(schema, names, path), False)


def _union(
    branches: list[Schema], names: dict[str, T.DataType | None], path: tuple[str, ...]
) -> tuple[T.DataType, bool]:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise BadArgument(
            f"the schema's {_place(path)} is a union of {len(others)} types beside null: Spark has no such type"
        )
    return _typed(others[0], names, path), "null" in branches


def _known(name: str, names: Mapping[str, T.DataType | None], path: tuple[str, ...]) -> T.DataType:
    if name not in names:
        raise BadArgument(f"the schema's {_place(path)} has the type {name!r}, which was not defined before it")
    found = names[name]
    if found is None:
        raise BadArgument(f"the schema's {_place(path)} contains {name!r}, which contains it: Spark has no such type")
    return found


def _remember(schema: Mapping[str, Any], names: dict[str, T.DataType | None], found: T.DataType) -> T.DataType:
    for name in _names_of(schema):
        names[name] = found
    return found


def _names_of(schema: Mapping[str, Any]) -> tuple[str, ...]:
    name = str(schema["name"])
    return (name, f"{schema['namespace']}.{name}") if schema.get("namespace") else (name,)


def _place(path: tuple[str, ...]) -> str:
    return f"field {'.'.join(path)!r}" if path else "top"
