"""Any message of the protocol, between bytes and plain dictionaries, by its definition.

A definition and a version are compiled once into closures: neighbouring fields of fixed size become one
`struct.Struct`, and what the version lacks costs nothing. Owns the encodings (classic and compact, tagged fields);
never knows what a message means. The two hottest messages have hand-written twins in `produce` and `fetch`.

A `Message` maps every field name of the definition to its value: integers, `bool`, `float`, `str`, `UUID`, `list`,
nested `Message`, `None`, and a memoryview of the input for `bytes` and `records`. Decoding fills fields that the
version lacks with their defaults. Encoding takes defaults for missing keys, leaves out what the version lacks, and
raises KeyError for a key that the definition does not have.

Bytes that are not the message raise MalformedMessage. No count or length is believed before it is compared with
the bytes left, so garbage costs no memory; nesting is bounded by the definition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any
from uuid import UUID

from oncelog.wire.primitives import (
    GARBLED,
    MalformedMessage,
    compact_string,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_string,
    read_count,
    read_slice,
    read_string,
    read_uvarint,
    string,
    uuid_from_bytes,
    uvarint,
)
from oncelog.wire.schema import Field, load_schema

__all__ = ["MalformedMessage", "Message", "decode", "decode_exactly", "encode"]

Message = dict[str, Any]

_Reader = Callable[[memoryview, int], tuple[Any, int]]
_ReadStep = Callable[[memoryview, int, Message], int]
_Writer = Callable[[Any, bytearray], None]
_WriteStep = Callable[[Message, bytearray], None]

_FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
_INT32 = struct.Struct(">i")
_UUID_BYTES = 16
_NULL_STRUCT = b"\xff"
_NULL_TAGGED_STRUCT = b"\x00"
_PRESENT_STRUCT = b"\x01"


def decode(schema_name: str, version: int, buffer: Any, position: int = 0) -> tuple[Message, int]:
    """The message that starts at `position`, and the position behind it."""
    reader = _message_reader(schema_name, version)
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        return reader(view, position)
    except GARBLED as error:
        raise MalformedMessage(f"{schema_name} v{version}: {error}") from None


def decode_exactly(schema_name: str, version: int, buffer: Any, position: int = 0) -> Message:
    """The message that fills the rest of the buffer."""
    message, end = decode(schema_name, version, buffer, position)
    if end != len(buffer):
        raise MalformedMessage(f"{schema_name} v{version}: {len(buffer) - end} bytes are left over")
    return message


def encode(schema_name: str, version: int, message: Message) -> bytes:
    out = bytearray()
    _message_writer(schema_name, version)(message, out)
    return bytes(out)


@cache
def _message_reader(schema_name: str, version: int) -> _Reader:
    schema = load_schema(schema_name)
    schema.check_version(version)
    return _struct_reader(schema.fields, version, schema.flexible.includes(version))


@cache
def _message_writer(schema_name: str, version: int) -> _Writer:
    schema = load_schema(schema_name)
    schema.check_version(version)
    return _struct_writer(schema_name, schema.fields, version, schema.flexible.includes(version))


# --- which fields a version has -----------------------------------------------------------------------------------


def _plain_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [field for field in fields if field.versions.includes(version) and not field.tagged.includes(version)]


def _tagged_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    tagged = [field for field in fields if field.versions.includes(version) and field.tagged.includes(version)]
    return sorted(tagged, key=lambda field: field.tag)


def _fixed_runs(fields: list[Field]) -> list[tuple[bool, list[Field]]]:
    """Neighbours of fixed size together, every other field alone."""
    runs: list[tuple[bool, list[Field]]] = []
    for fixed, group in groupby(fields, key=lambda field: field.type in _FIXED):
        members = list(group)
        runs += [(True, members)] if fixed else [(False, [field]) for field in members]
    return runs


def _is_flexible(field: Field, version: int, flexible: bool) -> bool:
    return flexible if field.flexible is None else field.flexible.includes(version)


def _least_bytes(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """The size of a struct whose strings and arrays are all empty: what one more array element costs at least."""
    size = sum(_least_field_bytes(field, version, flexible) for field in _plain_fields(fields, version))
    return size + 1 if flexible else size


def _least_field_bytes(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.type in _FIXED:
        return struct.calcsize(">" + _FIXED[field.type])
    if field.is_struct:
        nullable = field.nullable.includes(version)
        return 1 if nullable else _least_bytes(field.fields, version, flexible)
    if field.type == "uuid":
        return _UUID_BYTES
    return 1 if flexible else {"string": 2, "bytes": 4, "records": 4}[field.type]


# --- decoding -----------------------------------------------------------------------------------------------------


def _struct_reader(fields: tuple[Field, ...], version: int, flexible: bool) -> _Reader:
    template = {field.name: field.default() for field in fields}
    steps: list[_ReadStep] = []
    for fixed, members in _fixed_runs(_plain_fields(fields, version)):
        steps.append(_read_run(members) if fixed else _read_into(members[0], version, flexible))
    refreshed = _mutable_defaults(fields, version)

    def read_struct(buffer: memoryview, position: int) -> tuple[Message, int]:
        message = template.copy()
        for name, fresh in refreshed:
            message[name] = fresh()
        for step in steps:
            position = step(buffer, position, message)
        return message, position

    if not flexible:
        return read_struct
    readers = {
        field.tag: (field.name, _field_reader(field, version, flexible)) for field in _tagged_fields(fields, version)
    }

    def read_flexible_struct(buffer: memoryview, position: int) -> tuple[Message, int]:
        message, position = read_struct(buffer, position)
        if buffer[position] == 0:
            return message, position + 1
        return message, _read_tagged(readers, buffer, position, message)

    return read_flexible_struct


def _mutable_defaults(fields: tuple[Field, ...], version: int) -> list[tuple[str, Callable[[], Any]]]:
    """Fields that decoding may leave at a default which must not be shared between messages."""
    always_read = {field.name for field in _plain_fields(fields, version)}
    return [
        (field.name, field.default)
        for field in fields
        if field.name not in always_read and isinstance(field.default(), list | dict)
    ]


def _read_run(fields: list[Field]) -> _ReadStep:
    layout = struct.Struct(">" + "".join(_FIXED[field.type] for field in fields))
    names = tuple(field.name for field in fields)
    unpack_from, size = layout.unpack_from, layout.size
    if len(names) == 1:
        (name,) = names

        def read_one(buffer: memoryview, position: int, message: Message) -> int:
            (message[name],) = unpack_from(buffer, position)
            return position + size

        return read_one

    def read_run(buffer: memoryview, position: int, message: Message) -> int:
        message.update(zip(names, unpack_from(buffer, position), strict=True))
        return position + size

    return read_run


def _read_into(field: Field, version: int, flexible: bool) -> _ReadStep:
    name = field.name
    read = _field_reader(field, version, _is_flexible(field, version, flexible))

    def read_field(buffer: memoryview, position: int, message: Message) -> int:
        message[name], position = read(buffer, position)
        return position

    return read_field


def _read_tagged(readers: dict[int, tuple[str, _Reader]], buffer: memoryview, position: int, message: Message) -> int:
    count, position = read_uvarint(buffer, position)
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


def _field_reader(field: Field, version: int, flexible: bool) -> _Reader:
    nullable = field.nullable.includes(version)
    if field.is_array:
        reader = _array_reader(field, version, flexible)
    elif field.is_struct:
        reader = _struct_reader(field.fields, version, flexible)
        return _nullable_struct_reader(reader, field.tagged.includes(version)) if nullable else reader
    else:
        reader = _value_reader(field.type, flexible)
        if field.type in _FIXED or field.type == "uuid":
            return reader
    return reader if nullable else _not_null(field.name, reader)


def _not_null(name: str, read: _Reader) -> _Reader:
    def read_present(buffer: memoryview, position: int) -> tuple[Any, int]:
        value, position = read(buffer, position)
        if value is None:
            raise MalformedMessage(f"{name} may not be null")
        return value, position

    return read_present


def _nullable_struct_reader(read: _Reader, tagged: bool) -> _Reader:
    """A struct that may be null begins with a mark: an int8, -1 for null; in a tagged field an unsigned varint, 0."""

    def read_nullable(buffer: memoryview, position: int) -> tuple[Any, int]:
        mark = buffer[position]
        if mark == 0 if tagged else mark >= 0x80:
            return None, position + 1
        return read(buffer, position + 1)

    return read_nullable


def _value_reader(type_name: str, flexible: bool) -> _Reader:
    if type_name == "string":
        return read_compact_string if flexible else read_string
    if type_name in ("bytes", "records"):
        return read_compact_bytes if flexible else read_bytes
    if type_name == "uuid":
        return _read_uuid
    layout = struct.Struct(">" + _FIXED[type_name])
    unpack_from, size = layout.unpack_from, layout.size

    def read_fixed(buffer: memoryview, position: int) -> tuple[Any, int]:
        return unpack_from(buffer, position)[0], position + size

    return read_fixed


def _read_uuid(buffer: memoryview, position: int) -> tuple[UUID, int]:
    data, end = read_slice(buffer, position, _UUID_BYTES)
    return uuid_from_bytes(bytes(data)), end


def _array_reader(field: Field, version: int, flexible: bool) -> _Reader:
    counter = read_compact_count if flexible else read_count
    if field.element_type in _FIXED:
        return _fixed_array_reader(_FIXED[field.element_type], counter)
    if field.is_struct:
        read = _struct_reader(field.fields, version, flexible)
        least = _least_bytes(field.fields, version, flexible)
    else:
        read = _not_null(field.name, _value_reader(field.element_type, flexible))
        least = _least_field_bytes(field._replace(type=field.element_type), version, flexible)
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


def _fixed_array_reader(code: str, counter: Callable[[memoryview, int, int], tuple[int, int]]) -> _Reader:
    size = struct.calcsize(">" + code)

    def read_fixed_array(buffer: memoryview, position: int) -> tuple[list[Any] | None, int]:
        count, position = counter(buffer, position, size)
        if count < 0:
            return None, position
        return list(struct.unpack_from(f">{count}{code}", buffer, position)), position + count * size

    return read_fixed_array


# --- encoding -----------------------------------------------------------------------------------------------------


def _struct_writer(owner: str, fields: tuple[Field, ...], version: int, flexible: bool) -> _Writer:
    steps: list[_WriteStep] = []
    for fixed, members in _fixed_runs(_plain_fields(fields, version)):
        steps.append(_write_run(members) if fixed else _write_from(members[0], version, flexible))
    if flexible:
        steps.append(_write_tagged(_tagged_fields(fields, version), version))
    known = frozenset(field.name for field in fields)

    def write_struct(message: Message, out: bytearray) -> None:
        if not message.keys() <= known:
            raise KeyError(f"{owner} has no field {', '.join(sorted(message.keys() - known))}")
        for step in steps:
            step(message, out)

    return write_struct


def _write_run(fields: list[Field]) -> _WriteStep:
    pack = struct.Struct(">" + "".join(_FIXED[field.type] for field in fields)).pack
    defaults = tuple((field.name, field.default()) for field in fields)

    def write_run(message: Message, out: bytearray) -> None:
        get = message.get
        out += pack(*[get(name, default) for name, default in defaults])

    return write_run


def _write_from(field: Field, version: int, flexible: bool) -> _WriteStep:
    name, default = field.name, field.default()
    write = _field_writer(field, version, _is_flexible(field, version, flexible))

    def write_field(message: Message, out: bytearray) -> None:
        write(message.get(name, default), out)

    return write_field


def _write_tagged(fields: list[Field], version: int) -> _WriteStep:
    """Tagged fields that hold their default are left out; a default is known by its bytes."""
    writers = []
    for field in fields:
        write = _field_writer(field, version, flexible=True)
        default = bytearray()
        write(field.default(), default)
        writers.append((field.name, uvarint(field.tag), write, default))

    def write_tagged(message: Message, out: bytearray) -> None:
        present = []
        for name, tag, write, default in writers:
            if name not in message:
                continue
            value = bytearray()
            write(message[name], value)
            if value != default:
                present.append((tag, value))
        out += uvarint(len(present))
        for tag, value in present:
            out += tag + uvarint(len(value)) + value

    return write_tagged


def _field_writer(field: Field, version: int, flexible: bool) -> _Writer:
    nullable = field.nullable.includes(version)
    if field.is_array:
        writer = _array_writer(field, version, flexible)
    elif field.is_struct:
        writer = _struct_writer(field.element_type, field.fields, version, flexible)
        if nullable:
            return _nullable_struct_writer(writer, field.tagged.includes(version))
    else:
        writer = _value_writer(field.type, flexible)
    return writer if nullable else _refuse_null(field.name, version, writer)


def _refuse_null(name: str, version: int, write: _Writer) -> _Writer:
    def write_present(value: Any, out: bytearray) -> None:
        if value is None:
            raise ValueError(f"{name} may not be null in version {version}")
        write(value, out)

    return write_present


def _nullable_struct_writer(write: _Writer, tagged: bool) -> _Writer:
    null = _NULL_TAGGED_STRUCT if tagged else _NULL_STRUCT

    def write_nullable(value: Message | None, out: bytearray) -> None:
        if value is None:
            out += null
        else:
            out += _PRESENT_STRUCT
            write(value, out)

    return write_nullable


def _value_writer(type_name: str, flexible: bool) -> _Writer:
    if type_name == "string":
        return _write_compact_string if flexible else _write_string
    if type_name in ("bytes", "records"):
        return _write_compact_bytes if flexible else _write_bytes
    if type_name == "uuid":
        return _write_uuid
    pack = struct.Struct(">" + _FIXED[type_name]).pack

    def write_fixed(value: Any, out: bytearray) -> None:
        out += pack(value)

    return write_fixed


def _write_string(value: str | None, out: bytearray) -> None:
    out += string(value)


def _write_compact_string(value: str | None, out: bytearray) -> None:
    out += compact_string(value)


def _write_bytes(value: Any, out: bytearray) -> None:
    out += _count(value, flexible=False)
    if value is not None:
        out += value


def _write_compact_bytes(value: Any, out: bytearray) -> None:
    out += _count(value, flexible=True)
    if value is not None:
        out += value


def _write_uuid(value: UUID, out: bytearray) -> None:
    out += value.bytes


def _array_writer(field: Field, version: int, flexible: bool) -> _Writer:
    if field.element_type in _FIXED:
        return _fixed_array_writer(_FIXED[field.element_type], flexible)
    if field.is_struct:
        write = _struct_writer(field.element_type, field.fields, version, flexible)
    else:
        write = _refuse_null(field.name, version, _value_writer(field.element_type, flexible))

    def write_array(values: Any, out: bytearray) -> None:
        out += _count(values, flexible)
        for value in values or ():
            write(value, out)

    return write_array


def _fixed_array_writer(code: str, flexible: bool) -> _Writer:
    def write_fixed_array(values: Any, out: bytearray) -> None:
        out += _count(values, flexible)
        if values:
            out += struct.pack(f">{len(values)}{code}", *values)

    return write_fixed_array


def _count(values: Any, flexible: bool) -> bytes:
    if flexible:
        return uvarint(0 if values is None else len(values) + 1)
    return _INT32.pack(-1 if values is None else len(values))
