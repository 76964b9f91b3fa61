"""Tuples that compiled code makes without a Python call are whole: found in a set and a dict like those of Python.

Since Python 3.14 a tuple remembers its hash, and memory that was only zeroed remembers a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from oncelog.client.records import RecordMetadata, new_metadata
from oncelog.records import kernel
from oncelog.records.batch import build_batch, decode_records
from oncelog.wire.frame import encode_request
from oncelog.wire.produce import ProduceRequest, encode_produce_request
from oncelog.wire.quick import load

VERSION = 9


def metadata() -> Hashable:
    return new_metadata(RecordMetadata, "orders", 1, 2, 3)  # type: ignore[no-any-return]


def batch_header() -> Hashable:
    return kernel.parse_header(bytes(build_batch([(1, b"key", b"value", ())])))


def record() -> Hashable:
    (made,) = decode_records(bytes(build_batch([(1, b"key", b"value", (("h", b"x"),))])))
    return made


def request_header() -> Hashable:
    body = b"".join(encode_produce_request(VERSION, ProduceRequest(None, -1, 1000, [])))
    made = load(native=True).read_produce(memoryview(bytearray(encode_request(0, VERSION, 7, "client", body)[4:])))
    assert made is not None
    return made[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [metadata, batch_header, record, request_header])
def test_its_hash_is_that_of_what_it_holds(make: Callable[[], tuple[Hashable, ...]]) -> None:
    made = make()
    assert hash(made) == hash(tuple(made))
    assert made in {type(made)(*made), tuple(made)}
    assert {tuple(made): 1}[made] == 1
