"""What bytes become: the built-in deserializers, the twins of the producer's serializers, and the user's own.

A deserializer is a name (`"json"`), a function of the bytes, or an object with `deserialize(topic, data)`. None never
reaches it: a missing key stays None, and so does the value of a tombstone. What it raises comes out of `poll()` as a
`RecordDeserializationError` that names the partition, the offset and the field.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from operator import methodcaller
from typing import Any, Protocol

from oncelog.errors import InvalidConfig

Deserialize = Callable[[bytes], Any]


class Deserializer(Protocol):
    def deserialize(self, topic: str, data: bytes, /) -> Any: ...


def _unpacker(layout: str, noun: str) -> Deserialize:
    unpack = struct.Struct(layout).unpack

    def unpacked(data: bytes) -> Any:
        try:
            return unpack(data)[0]
        except struct.error:
            raise ValueError(f"{data[:16]!r} ({len(data)} bytes) is no {noun}") from None

    return unpacked


BUILT_IN: dict[str, Deserialize | None] = {
    "bytes": None,
    "str": methodcaller("decode"),
    "int": _unpacker(">q", "whole number of 64 bits"),
    "int32": _unpacker(">i", "whole number of 32 bits"),
    "int16": _unpacker(">h", "whole number of 16 bits"),
    "float": _unpacker(">d", "number of 64 bits"),
    "float32": _unpacker(">f", "number of 32 bits"),
    "json": json.loads,
}
"""By the names that `key_deserializer` and `value_deserializer` take; numbers are big-endian, as Java's are."""


def deserializer_for(chosen: str | Deserialize | Deserializer, part: str) -> Callable[[str], Deserialize | None]:
    """By topic, what turns the bytes of its records into values; None leaves them as they are.

    `part` is "key" or "value"."""
    if isinstance(chosen, str):
        built_in = BUILT_IN[chosen]
        return lambda topic: built_in
    method = getattr(chosen, "deserialize", chosen)
    assert callable(method)
    if iscoroutinefunction(method):
        raise InvalidConfig(f"{part}.deserializer {chosen!r} is asynchronous, and is not awaited: give a plain one")
    return (lambda topic: chosen) if method is chosen else partial(partial, method)
