"""Compiles a message definition and a version into a function that reads it.

Neighbouring fields of fixed size become one `struct.Struct`; what the version lacks costs nothing. The functions raise
MalformedMessage, or one of `GARBLED`, for bytes that are not the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from oncelog.wire.layout import (
    FIXED,
    UUID_BYTES,
    fixed_runs,
    is_flexible,
    least_bytes,
    least_field_bytes,
    plain_fields,
    tagged_fields,
)
from oncelog.wire.primitives import (
    MalformedMessage,
    check_tag_count,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_string,
    read_count,
    read_slice,
    read_string,
    read_uvarint,
    spend,
    uuid_from_bytes,
)
from oncelog.wire.schema import Field


class ElementBudget:
    """How many array elements a message may still hold; shared by all readers of one message."""

    __slots__ = ("_left",)

    def __init__(self, elements: int) -> None:
        self._left = elements

    def take(self, count: int) -> None:
        self._left = spend(self._left, count)


Reader = Callable[[memoryview, int], tuple[Any, int]]
_ReadStep = Callable[[memoryview, int, dict[str, Any]], int]
_Counter = Callable[[memoryview, int, int], tuple[int, int]]


def struct_reader(
    fields: tuple[Field, ...], version: int, flexible: bool, budget: ElementBudget | None = None
) -> Reader:
    """Reads these fields into a dictionary. With a budget the reader is good for one message only."""
    template = {field.name: field.default() for field in fields}
    steps: list[_ReadStep] = []
    for fixed, members in fixed_runs(plain_fields(fields, version)):
        steps.append(_read_run(members) if fixed else _read_into(members[0], version, flexible, budget))
    refreshed = _mutable_defaults(fields, version)

    def read_struct(buffer: memoryview, position: int) -> tuple[dict[str, Any], int]:
        message = template.copy()
        for name, fresh in refreshed:
            message[name] = fresh()
        for step in steps:
            position = step(buffer, position, message)
        return message, position

    if not flexible:
        return read_struct
    readers = {
        field.tag: (field.name, _field_reader(field, version, flexible, budget))
        for field in tagged_fields(fields, version)
    }

    def read_flexible_struct(buffer: memoryview, position: int) -> tuple[dict[str, Any], int]:
        message, position = read_struct(buffer, position)
        if buffer[position] == 0:
            return message, position + 1
        return message, _read_tagged(readers, buffer, position, message)

    return read_flexible_struct


def _mutable_defaults(fields: tuple[Field, ...], version: int) -> list[tuple[str, Callable[[], Any]]]:
    """Fields that decoding may leave at a default which must not be shared between messages."""
    always_read = {field.name for field in plain_fields(fields, version)}
    return [
        (field.name, field.default)
        for field in fields
        if field.name not in always_read and isinstance(field.default(), list | dict)
    ]


def _read_run(fields: list[Field]) -> _ReadStep:
    layout = struct.Struct(">" + "".join(FIXED[field.type] for field in fields))
    names = tuple(field.name for field in fields)
    unpack_from, size = layout.unpack_from, layout.size
    if len(names) == 1:
        (name,) = names

        def read_one(buffer: memoryview, position: int, message: dict[str, Any]) -> int:
            (message[name],) = unpack_from(buffer, position)
            return position + size

        return read_one

    def read_run(buffer: memoryview, position: int, message: dict[str, Any]) -> int:
        message.update(zip(names, unpack_from(buffer, position), strict=True))
        return position + size

    return read_run


def _read_into(field: Field, version: int, flexible: bool, budget: ElementBudget | None) -> _ReadStep:
    name = field.name
    read = _field_reader(field, version, is_flexible(field, version, flexible), budget)

    def read_field(buffer: memoryview, position: int, message: dict[str, Any]) -> int:
        message[name], position = read(buffer, position)
        return position

    return read_field


def _read_tagged(
    readers: dict[int, tuple[str, Reader]], buffer: memoryview, position: int, message: dict[str, Any]
) -> int:
    count, position = read_uvarint(buffer, position)
    check_tag_count(count)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        value, end = read_slice(buffer, position, size)
        known = readers.get(tag)
        if known is not None:
            name, read = known
            message[name], read_bytes_count = read(value, 0)
            if read_bytes_count != size:
                raise MalformedMessage(f"tagged field {name} ends {size - read_bytes_count} bytes early")
        position = end
    return position


def _field_reader(field: Field, version: int, flexible: bool, budget: ElementBudget | None) -> Reader:
    nullable = field.nullable.includes(version)
    if field.is_array:
        reader = _array_reader(field, version, flexible, budget)
    elif field.is_struct:
        reader = struct_reader(field.fields, version, flexible, budget)
        return _nullable_struct_reader(reader, field.tagged.includes(version)) if nullable else reader
    else:
        reader = _value_reader(field.type, flexible)
        if field.type in FIXED or field.type == "uuid":
            return reader
    return reader if nullable else _not_null(field.name, reader)


def _not_null(name: str, read: Reader) -> Reader:
    def read_present(buffer: memoryview, position: int) -> tuple[Any, int]:
        value, position = read(buffer, position)
        if value is None:
            raise MalformedMessage(f"{name} may not be null")
        return value, position

    return read_present


def _nullable_struct_reader(read: Reader, tagged: bool) -> Reader:
    """A struct that may be null begins with a mark: an int8, -1 for null; in a tagged field an unsigned varint, 0."""

    def read_nullable(buffer: memoryview, position: int) -> tuple[Any, int]:
        mark = buffer[position]
        if mark == 0 if tagged else mark >= 0x80:
            return None, position + 1
        return read(buffer, position + 1)

    return read_nullable


def _value_reader(type_name: str, flexible: bool) -> Reader:
    if type_name == "string":
        return read_compact_string if flexible else read_string
    if type_name in ("bytes", "records"):
        return read_compact_bytes if flexible else read_bytes
    if type_name == "uuid":
        return _read_uuid
    layout = struct.Struct(">" + FIXED[type_name])
    unpack_from, size = layout.unpack_from, layout.size

    def read_fixed(buffer: memoryview, position: int) -> tuple[Any, int]:
        return unpack_from(buffer, position)[0], position + size

    return read_fixed


def _read_uuid(buffer: memoryview, position: int) -> tuple[UUID, int]:
    data, end = read_slice(buffer, position, UUID_BYTES)
    return uuid_from_bytes(bytes(data)), end


def _array_reader(field: Field, version: int, flexible: bool, budget: ElementBudget | None) -> Reader:
    counter = _counter(flexible, budget)
    if field.element_type in FIXED:
        return _fixed_array_reader(FIXED[field.element_type], counter)
    if field.is_struct:
        read = struct_reader(field.fields, version, flexible, budget)
        least = least_bytes(field.fields, version, flexible)
    else:
        read = _not_null(field.name, _value_reader(field.element_type, flexible))
        least = least_field_bytes(field._replace(type=field.element_type), version, flexible)
    assert least > 0, f"an element of {field.name} takes no bytes in v{version}: its count could not be bounded"

    def read_array(buffer: memoryview, position: int) -> tuple[list[Any] | None, int]:
        count, position = counter(buffer, position, least)
        if count < 0:
            return None, position
        values = []
        for _ in range(count):
            value, position = read(buffer, position)
            values.append(value)
        return values, position

    return read_array


def _counter(flexible: bool, budget: ElementBudget | None) -> _Counter:
    read = read_compact_count if flexible else read_count
    if budget is None:
        return read

    def read_and_spend(buffer: memoryview, position: int, least: int) -> tuple[int, int]:
        count, position = read(buffer, position, least)
        budget.take(max(count, 0))
        return count, position

    return read_and_spend


def _fixed_array_reader(code: str, counter: _Counter) -> Reader:
    size = struct.calcsize(">" + code)

    def read_fixed_array(buffer: memoryview, position: int) -> tuple[list[Any] | None, int]:
        count, position = counter(buffer, position, size)
        if count < 0:
            return None, position
        return list(struct.unpack_from(f">{count}{code}", buffer, position)), position + count * size

    return read_fixed_array
