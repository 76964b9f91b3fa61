"""Values of a message for Hypothesis, and the same values as `kio` sees them.

kio's classes list a version's fields in the order of the definition, under slightly different names and types
(`max_wait: timedelta` for `max_wait_ms: int32`), so fields are paired by position.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import re
import typing
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from oncelog.wire.codec import Message
from oncelog.wire.schema import ZERO_UUID, Field, MessageSchema

ERROR_CODES = sorted(int(code) for code in ErrorCode)
INTEGER_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
FINITE_TIMES = st.integers(0, 2**40)
"""Where kio makes a datetime or timedelta of an int64, years beyond 9999 would not fit."""


def kio_class(schema: MessageSchema, version: int) -> Any:
    api, kind = re.fullmatch(r"(\w+?)(Request|Response|)(?:Header)?", schema.name).groups()  # type: ignore[union-attr]
    if schema.name.endswith("Header"):
        path, kind = _snake(schema.name), "header"
    else:
        path, kind = _snake(api), kind.lower() or "data"
    module = importlib.import_module(f"kio.schema.{path}.v{version}.{kind}")
    return getattr(module, schema.name)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def present_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [field for field in fields if field.versions.includes(version)]


def pairs(fields: tuple[Field, ...], version: int, entity: Any) -> list[tuple[Field, Any]]:
    ours, theirs = present_fields(fields, version), dataclasses.fields(entity)
    assert len(ours) == len(theirs), (entity, [field.name for field in ours], [field.name for field in theirs])
    return list(zip(ours, theirs, strict=True))


def messages(fields: tuple[Field, ...], version: int, entity: Any) -> st.SearchStrategy[Message]:
    return st.fixed_dictionaries(
        {field.name: values(field, version, kio_field) for field, kio_field in pairs(fields, version, entity)}
    )


def values(field: Field, version: int, kio_field: Any) -> st.SearchStrategy[Any]:
    if field.is_struct:
        strategy = messages(field.fields, version, nested_class(kio_field.type))
    else:
        strategy = primitives(field.element_type, kio_field.metadata.get("kafka_type", ""))
    if field.is_array:
        strategy = st.lists(strategy, max_size=3)
    return st.none() | strategy if field.nullable.includes(version) else strategy


def nested_class(annotation: Any) -> Any:
    """The dataclass inside `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    for argument in typing.get_args(annotation):
        if argument not in (type(None), Ellipsis):
            return nested_class(argument)
    raise AssertionError(annotation)


def primitives(type_name: str, kio_type: str) -> st.SearchStrategy[Any]:
    if kio_type == "error_code":
        return st.sampled_from(ERROR_CODES)
    if type_name == "int64" and kio_type != "int64":
        return FINITE_TIMES
    if type_name in INTEGER_BITS:
        bound = 2 ** INTEGER_BITS[type_name]
        return st.integers(-bound, bound - 1)
    return {
        "uint16": st.integers(0, 2**16 - 1),
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False, allow_infinity=False),
        "string": st.text(max_size=6) | st.text("é", min_size=100, max_size=130),
        "bytes": st.binary(max_size=6),
        "records": st.binary(max_size=200),
        "uuid": st.uuids() | st.just(ZERO_UUID),
    }[type_name]


def same(fields: tuple[Field, ...], version: int, message: Message, entity: Any) -> bool:
    """Whether kio read the message that we wrote."""
    return all(
        same_value(field, version, message[field.name], getattr(entity, kio_field.name))
        for field, kio_field in pairs(fields, version, type(entity))
    )


def same_value(field: Field, version: int, ours: Any, theirs: Any) -> bool:
    if field.is_array and ours is not None:
        element = field._replace(type=field.element_type)
        return len(ours) == len(theirs) and all(
            same_value(element, version, one, other) for one, other in zip(ours, theirs, strict=True)
        )
    if field.is_struct and ours is not None:
        return same(field.fields, version, ours, theirs)
    return plain(ours) == plain(theirs)


def plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return int(value)
    if isinstance(value, memoryview):
        return bytes(value)
    return None if value in (ZERO_UUID, None) and not isinstance(value, int) else value


def plain_message(value: Any) -> Any:
    """The message with views turned into bytes, so that two of them can be compared."""
    if isinstance(value, dict):
        return {key: plain_message(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain_message(inner) for inner in value]
    return bytes(value) if isinstance(value, memoryview) else value


def covers(decoded: Any, message: Any) -> bool:
    """Whether every value of `message` came back; `decoded` also holds the defaults of other versions' fields."""
    if isinstance(message, dict):
        return all(covers(decoded[key], value) for key, value in message.items())
    if isinstance(message, list):
        return len(decoded) == len(message) and all(map(covers, decoded, message))
    return bool(decoded == message)
