"""Any message of the protocol, between bytes and plain dictionaries, by its definition.

A definition and a version are compiled once into closures: neighbouring fields of fixed size become one
`struct.Struct`, and what the version lacks costs nothing. Owns the encodings (classic and compact, tagged fields);
never knows what a message means. The two hottest messages have hand-written twins in `produce` and `fetch`.

A `Message` maps every field name of the definition to its value: integers, `bool`, `float`, `str`, `UUID`, `list`,
nested `Message`, `None`, and a memoryview of the input for `bytes` and `records`. Decoding fills fields that the
version lacks with their defaults. Encoding takes defaults for missing keys, leaves out what the version lacks, and
raises KeyError for a key that the definition does not have.

Bytes that are not the message raise MalformedMessage. No count or length is believed before it is compared with
the bytes left, so garbage costs no memory; nesting is bounded by the definition, the elements of a request by whoever
decodes it (`decode_bounded`), and what is encoded by `MAX_ENCODED_BYTES`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from oncelog.wire.decoder import ElementBudget, Reader, struct_reader
from oncelog.wire.encoder import EncodedElements, Writer, element_writer, struct_writer
from oncelog.wire.primitives import GARBLED, MalformedMessage, in_words
from oncelog.wire.schema import load_schema

__all__ = ["MalformedMessage", "Message", "decode", "decode_exactly", "encode"]

Message = dict[str, Any]


def decode(schema_name: str, version: int, buffer: Any, position: int = 0) -> tuple[Message, int]:
    """The message that starts at `position`, and the position behind it."""
    return _read(_message_reader(schema_name, version), schema_name, version, buffer, position)


def decode_bounded(schema_name: str, version: int, buffer: Any, position: int, max_elements: int) -> Message:
    """The same for a message from somebody who may mean ill: it may hold `max_elements` in all its arrays. One that has
    not as many bytes cannot hold more, and is not counted."""
    if len(buffer) - position <= max_elements:
        reader = _message_reader(schema_name, version)
    else:
        reader = _counting_reader(schema_name, version, max_elements)
    return _read(reader, schema_name, version, buffer, position)[0]


def _read(reader: Reader, schema_name: str, version: int, buffer: Any, position: int) -> tuple[Message, int]:
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    try:
        return reader(view, position)
    except GARBLED as error:
        raise MalformedMessage(f"{schema_name} v{version}: {in_words(error)}") from None


def decode_exactly(schema_name: str, version: int, buffer: Any, position: int = 0) -> Message:
    """The message that fills the rest of the buffer."""
    message, end = decode(schema_name, version, buffer, position)
    if end != len(buffer):
        raise MalformedMessage(f"{schema_name} v{version}: {len(buffer) - end} bytes are left over")
    return message


def encode(schema_name: str, version: int, message: Message) -> bytes:
    """Raises EncodedTooLarge."""
    out = bytearray()
    _message_writer(schema_name, version)(message, out)
    return bytes(out)


def encoded_elements(schema_name: str, version: int, *path: str) -> EncodedElements:
    """To be filled one by one, and then encoded as this array of a message. An array inside of another's elements has
    a path: first the outer one."""
    return EncodedElements(_element_writer(schema_name, version, path))


@cache
def _message_reader(schema_name: str, version: int) -> Reader:
    schema = load_schema(schema_name)
    schema.check_version(version)
    return struct_reader(schema.fields, version, schema.flexible.includes(version))


def _counting_reader(schema_name: str, version: int, max_elements: int) -> Reader:
    """Compiled anew for every large request, which is rare, so that the usual small one pays nothing for counting."""
    schema = load_schema(schema_name)
    schema.check_version(version)
    budget = ElementBudget(max_elements)
    return struct_reader(schema.fields, version, schema.flexible.includes(version), budget)


@cache
def _message_writer(schema_name: str, version: int) -> Writer:
    schema = load_schema(schema_name)
    schema.check_version(version)
    return struct_writer(schema_name, schema.fields, version, schema.flexible.includes(version))


@cache
def _element_writer(schema_name: str, version: int, path: tuple[str, ...]) -> Writer:
    schema = load_schema(schema_name)
    fields = schema.fields
    for array in path:
        (field,) = (field for field in fields if field.name == array)
        fields = field.fields
    return element_writer(field, version, schema.flexible.includes(version))
