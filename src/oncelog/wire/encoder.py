"""Compiles a message definition and a version into a function that writes it.

A message may grow to `MAX_ENCODED_BYTES`; then writing it stops, wherever it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.wire.layout import FIXED, fixed_runs, is_flexible, plain_fields, tagged_fields
from oncelog.wire.primitives import compact_string, string, uvarint
from oncelog.wire.schema import Field

Writer = Callable[[Any, bytearray], None]
_WriteStep = Callable[[dict[str, Any], bytearray], None]

MAX_ENCODED_BYTES = 32 << 20
"""How large one encoded message may be: the configs of 10,000 topics, or a million committed offsets. It is held as a
whole, by whoever sends it; what is larger (records) is not encoded here."""

_INT32 = struct.Struct(">i")
_NULL_STRUCT = b"\xff"
_NULL_TAGGED_STRUCT = b"\x00"
_PRESENT_STRUCT = b"\x01"


class EncodedTooLarge(OncelogError):
    """A message has more than MAX_ENCODED_BYTES."""


class EncodedElements:
    """The elements of an array that were written before, each by itself, in the place of their values."""

    __slots__ = ("_write", "count", "data")

    def __init__(self, write: Writer) -> None:
        self._write = write
        self.count = 0
        self.data = bytearray()

    def append(self, element: Any) -> None:
        """Raises EncodedTooLarge."""
        self._write(element, self.data)
        self.count += 1
        _check_size(self.data)

    def append_alike(self, element: Any, index_at: int, indexes: Iterable[int]) -> None:
        """Elements that differ in nothing but the int32 at this position: written once, and repeated with each index.
        Raises EncodedTooLarge."""
        template = bytearray()
        self._write(element, template)
        head, tail = bytes(template[:index_at]), bytes(template[index_at + _INT32.size :])
        pack = _INT32.pack
        encoded = [head + pack(index) + tail for index in indexes]
        self.data += b"".join(encoded)
        self.count += len(encoded)
        _check_size(self.data)

    def __len__(self) -> int:
        return self.count


def _check_size(out: bytearray) -> None:
    if len(out) > MAX_ENCODED_BYTES:
        raise EncodedTooLarge(f"an answer of more than {MAX_ENCODED_BYTES} bytes; ask for less at once")


def struct_writer(owner: str, fields: tuple[Field, ...], version: int, flexible: bool) -> Writer:
    steps: list[_WriteStep] = []
    for fixed, members in fixed_runs(plain_fields(fields, version)):
        steps.append(_write_run(members) if fixed else _write_from(members[0], version, flexible))
    if flexible:
        steps.append(_write_tagged(tagged_fields(fields, version), version))
    known = frozenset(field.name for field in fields)

    def write_struct(message: dict[str, Any], out: bytearray) -> None:
        if not message.keys() <= known:
            raise KeyError(f"{owner} has no field {', '.join(sorted(message.keys() - known))}")
        for step in steps:
            step(message, out)

    return write_struct


def _write_run(fields: list[Field]) -> _WriteStep:
    pack = struct.Struct(">" + "".join(FIXED[field.type] for field in fields)).pack
    defaults = tuple((field.name, field.default()) for field in fields)

    def write_run(message: dict[str, Any], out: bytearray) -> None:
        get = message.get
        out += pack(*[get(name, default) for name, default in defaults])

    return write_run


def _write_from(field: Field, version: int, flexible: bool) -> _WriteStep:
    name, default = field.name, field.default()
    write = _field_writer(field, version, is_flexible(field, version, flexible))

    def write_field(message: dict[str, Any], out: bytearray) -> None:
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

    def write_tagged(message: dict[str, Any], out: bytearray) -> None:
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


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = field.nullable.includes(version)
    if field.is_array:
        writer = _array_writer(field, version, flexible)
    elif field.is_struct:
        writer = struct_writer(field.element_type, field.fields, version, flexible)
        if nullable:
            return _nullable_struct_writer(writer, field.tagged.includes(version))
    else:
        writer = _value_writer(field.type, flexible)
    return writer if nullable else _refuse_null(field.name, version, writer)


def _refuse_null(name: str, version: int, write: Writer) -> Writer:
    def write_present(value: Any, out: bytearray) -> None:
        if value is None:
            raise ValueError(f"{name} may not be null in version {version}")
        write(value, out)

    return write_present


def _nullable_struct_writer(write: Writer, tagged: bool) -> Writer:
    null = _NULL_TAGGED_STRUCT if tagged else _NULL_STRUCT

    def write_nullable(value: dict[str, Any] | None, out: bytearray) -> None:
        if value is None:
            out += null
        else:
            out += _PRESENT_STRUCT
            write(value, out)

    return write_nullable


def _value_writer(type_name: str, flexible: bool) -> Writer:
    if type_name == "string":
        return _write_compact_string if flexible else _write_string
    if type_name in ("bytes", "records"):
        return _write_compact_bytes if flexible else _write_bytes
    if type_name == "uuid":
        return _write_uuid
    pack = struct.Struct(">" + FIXED[type_name]).pack

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


def _array_writer(field: Field, version: int, flexible: bool) -> Writer:
    if field.element_type in FIXED:
        return _fixed_array_writer(FIXED[field.element_type], flexible)
    write = element_writer(field, version, flexible)

    def write_array(values: Any, out: bytearray) -> None:
        out += _count(values, flexible)
        if type(values) is EncodedElements:
            out += values.data
            return
        for value in values or ():
            write(value, out)
            if len(out) > MAX_ENCODED_BYTES:
                _check_size(out)

    return write_array


def element_writer(field: Field, version: int, flexible: bool) -> Writer:
    """Of an array whose elements are not of a fixed size."""
    if field.is_struct:
        return struct_writer(field.element_type, field.fields, version, flexible)
    return _refuse_null(field.name, version, _value_writer(field.element_type, flexible))


def _fixed_array_writer(code: str, flexible: bool) -> Writer:
    def write_fixed_array(values: Any, out: bytearray) -> None:
        out += _count(values, flexible)
        if values:
            out += struct.pack(f">{len(values)}{code}", *values)

    return write_fixed_array


def _count(values: Any, flexible: bool) -> bytes:
    if flexible:
        return uvarint(0 if values is None else len(values) + 1)
    return _INT32.pack(-1 if values is None else len(values))
