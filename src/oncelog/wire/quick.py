"""Plain Produce requests and answers, natively where the kernel is native too; what is not plain goes to `produce`.

Chooses between `_quick` and its twin, the Python codec, which also does everything where nothing was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from oncelog.records import kernel
from oncelog.wire import produce
from oncelog.wire.frame import RequestHeader
from oncelog.wire.produce import ProducedTopic, ProduceRequest

ReadProduce = Callable[[memoryview], tuple[RequestHeader, ProduceRequest] | None]
WriteResponse = Callable[[int, Sequence[ProducedTopic], int], bytes | None]


def load(native: bool) -> tuple[ReadProduce, WriteResponse]:
    if native:
        try:
            module = import_module("oncelog.wire._quick")
        except ImportError:
            pass
        else:
            return module.read_produce, module.produce_response
    return lambda frame: None, produce.encode_produce_response


read_produce, _produce_response = load(kernel.NATIVE)
"""`read_produce(frame)` is the header and the body of a plain Produce, or None if somebody else must read the frame."""


def encode_produce_response(version: int, topics: Sequence[ProducedTopic], throttle_ms: int) -> bytes:
    plain = _produce_response(version, topics, throttle_ms)
    return plain if plain is not None else produce.encode_produce_response(version, topics, throttle_ms)
