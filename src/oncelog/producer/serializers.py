"""How keys and values become bytes: the built-in serializers, and the user's own under the same roof.

A serializer is a name (`"json"`), a function of the value, or an object with `serialize(topic, value)`. None never
reaches it: a missing key stays missing, and a missing value is the tombstone that compaction looks for. Whatever goes
wrong comes out of `send()` as a `SerializationError` that names the topic and the field.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Protocol

from oncelog.errors import OncelogError
from oncelog.records.model import Buffer


class SerializationError(OncelogError):
    """A key or value could not be turned into bytes; nothing was sent."""


class UnserializableType(SerializationError, TypeError):
    """The serializer does not take values of this type."""


class Serializer(Protocol):
    def serialize(self, topic: str, value: Any, /) -> Buffer | None: ...


def as_bytes(value: Any, what: str = "not bytes") -> Buffer:
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        return value if value.format == "B" and value.c_contiguous else value.tobytes()
    raise TypeError(f"{_named_type(value)} is {what}")


def as_text(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"{_named_type(value)} is not text")


def as_bytes_or_text(value: Any) -> Buffer:
    return value.encode() if isinstance(value, str) else as_bytes(value, "neither bytes nor text")


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def as_sorted_json(value: Any) -> bytes:
    """For keys: equal ones must become equal bytes, or they would end up in different partitions."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def _packer(layout: str, noun: str) -> Callable[[Any], bytes]:
    pack = struct.Struct(layout).pack

    def packed(value: Any) -> bytes:
        try:
            return pack(value)
        except (struct.error, OverflowError) as error:
            problem = TypeError if not isinstance(value, (int, float)) else ValueError
            raise problem(f"{value!r} is no {noun}") from error

    return packed


BUILT_IN: dict[str, Callable[[Any], Buffer]] = {
    "auto": as_bytes_or_text,
    "bytes": as_bytes,
    "str": as_text,
    "int": _packer(">q", "whole number of 64 bits"),
    "int32": _packer(">i", "whole number of 32 bits"),
    "int16": _packer(">h", "whole number of 16 bits"),
    "float": _packer(">d", "number that fits into 64 bits"),
    "float32": _packer(">f", "number that fits into 32 bits"),
    "json": as_json,
}
"""By the names that `key_serializer` and `value_serializer` take; numbers are big-endian, as Java's are."""


def serializer_for(
    chosen: str | Callable[[Any], Buffer | None] | Serializer, part: str
) -> Callable[[str, Any], Buffer | None]:
    """What turns the keys or the values of a topic's records into bytes, or raises SerializationError.

    `part` is "key" or "value"."""
    encode = _encoder(chosen, part)

    def serialize(topic: str, value: Any) -> Buffer | None:
        if value is None:
            return None
        try:
            data = encode(topic, value)
            return None if data is None else as_bytes(data)
        except Exception as error:
            problem = UnserializableType if isinstance(error, TypeError) else SerializationError
            raise problem(
                f"the {part} of a record for {topic} cannot be serialized: {error}{_remedy(part, value)}"
            ) from error

    return serialize


def _remedy(part: str, value: Any) -> str:
    names = [name for types, name in _REMEDIES if isinstance(value, types)]
    return f'; try {part}_serializer="{names[0]}"' if names else ""


_REMEDIES: list[tuple[type | tuple[type, ...], str]] = [
    (str, "str"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((bool, dict, list, tuple), "json"),
    (int, "int"),
    (float, "float"),
]


def _encoder(chosen: Any, part: str) -> Callable[[str, Any], Any]:
    if isinstance(chosen, str):
        function = as_sorted_json if (part, chosen) == ("key", "json") else BUILT_IN[chosen]
        return lambda topic, value: function(value)
    serialize = getattr(chosen, "serialize", None)
    if callable(serialize):
        encode: Callable[[str, Any], Any] = serialize
        return encode
    return lambda topic, value: chosen(value)


def _named_type(value: Any) -> str:
    return f"{value!r:.80} ({type(value).__name__})"
