"""Plain Produce and OffsetCommit requests, their answers and offset records, natively where the kernel is native too.

Chooses between `_quick` and its twins, the Python codecs, which also do everything where nothing was compiled, and
whatever is not plain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.wire import produce
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader
from oncelog.wire.produce import ProducedTopic, ProduceRequest, ProduceResponse


class Quick(NamedTuple):
    """What is not plain, each of them leaves to somebody else by returning None."""

    read_produce: Callable[[memoryview], tuple[RequestHeader, ProduceRequest] | None]
    produce_response: Callable[[int, Sequence[ProducedTopic], int], bytes | None]
    produce_request: Callable[[int, ProduceRequest], list[Any] | None]
    read_produce_response: Callable[[memoryview, int, int], ProduceResponse | None]
    read_offset_commit: Callable[[memoryview], tuple[RequestHeader, Message] | None]
    offset_commit_response: Callable[[int, Message], bytes | None]
    offset_record: Callable[[Message, Message], tuple[bytes, bytes] | None]


def load(native: bool) -> Quick:
    if native:
        try:
            module = import_module("oncelog.wire._quick")
        except ImportError:
            pass
        else:
            return Quick(*(getattr(module, name) for name in Quick._fields))
    return Quick(*[_nothing] * len(Quick._fields))


def _nothing(*_: object) -> None:
    """Nothing is plain enough."""


_quick = load(kernel.NATIVE)
read_produce, read_offset_commit = _quick.read_produce, _quick.read_offset_commit
offset_commit_response, offset_record = _quick.offset_commit_response, _quick.offset_record
produce_request, read_produce_response = _quick.produce_request, _quick.read_produce_response


def encode_produce_response(version: int, topics: Sequence[ProducedTopic], throttle_ms: int) -> bytes:
    plain = _quick.produce_response(version, topics, throttle_ms)
    return plain if plain is not None else produce.encode_produce_response(version, topics, throttle_ms)
