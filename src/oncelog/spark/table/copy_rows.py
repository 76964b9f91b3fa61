"""Arrow batches as the bytes of PostgreSQL's binary COPY, without a Python object for any row.

A row is its number of fields, and for each field its length and its bytes, all numbers big-endian; a null has the
length -1. Every column becomes an array of lengths and one of bytes, and Arrow joins them row by row. PostgreSQL then
parses nothing: numbers are swapped, text is checked to be text.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncelog.spark.table.columns import Kind
from oncelog.spark.table.layout import Layout

HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER: Final = struct.pack("!h", -1)
NULL_LENGTH: Final = struct.pack("!i", -1)
MAX_CHUNK_BYTES: Final = 64 << 20
"""Of one batch that is encoded at once; a larger one is cut by rows."""

KEPT_SIZES: Final = 16
"""Of batches, for which offsets are kept: all but the last of a task have the same."""

EPOCH_2000_DAYS: Final = 10_957
EPOCH_2000_US: Final = EPOCH_2000_DAYS * 86_400_000_000
INTEGERS: Final = {
    Kind.INT8: (pa.int16(), "h"),
    Kind.INT16: (pa.int16(), "h"),
    Kind.INT32: (pa.int32(), "i"),
    Kind.INT64: (pa.int64(), "q"),
}
FLOATS: Final = {Kind.FLOAT32: (pa.float32(), pa.int32(), "i"), Kind.FLOAT64: (pa.float64(), pa.int64(), "q")}


def encode(batch: pa.RecordBatch, layout: Layout, attempt: int, first_ordinal: int) -> Iterator[pa.Buffer]:
    if batch.nbytes > MAX_CHUNK_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from encode(batch.slice(0, half), layout, attempt, first_ordinal)
        yield from encode(batch.slice(half), layout, attempt, first_ordinal + half)
    elif batch.num_rows:
        yield _rows(batch, layout, attempt, first_ordinal)


def _rows(batch: pa.RecordBatch, layout: Layout, attempt: int, first_ordinal: int) -> pa.Buffer:
    fields = len(layout.columns) + 1 + layout.has_ordinals
    parts: list[Any] = [pa.scalar(struct.pack("!hiq", fields, 8, attempt), pa.binary())]
    if layout.has_ordinals:
        ordinals = pc.add(_numbers(batch.num_rows), pa.scalar(first_ordinal))
        parts += [_length(8), _swapped(_array("q", ordinals))]
    for column, values in zip(layout.columns, batch.columns, strict=True):
        parts += _field(column.kind, values)
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()), null_handling="replace")
    _, offsets, data = joined.buffers()
    first, last = _bounds(joined, offsets)
    return data.slice(first, last - first)


def _bounds(joined: pa.Array, offsets: pa.Buffer) -> tuple[int, int]:
    numbers = memoryview(offsets).cast("i")
    return numbers[joined.offset], numbers[joined.offset + len(joined)]


def _field(kind: Kind, values: pa.Array) -> list[Any]:
    if kind in (Kind.TEXT, Kind.BYTES):
        return _variable(values.cast(pa.binary()))
    if kind is Kind.DECIMAL:
        return _variable(values.cast(pa.string()).cast(pa.binary()))
    if kind is Kind.NOTHING:
        return [pa.scalar(NULL_LENGTH, pa.binary())]
    if kind is Kind.BOOLEAN:
        size, numbers = 1, pc.if_else(values, pa.scalar(b"\1", pa.binary()), pa.scalar(b"\0", pa.binary()))
    else:
        whole, code = _as_integers(kind, values)
        size, numbers = array(code).itemsize, _swapped(_array(code, whole))
    if values.null_count == 0:
        return [_length(size), numbers]
    null = values.is_null()
    empty = pa.scalar(b"", pa.binary())
    return [pc.if_else(null, pa.scalar(NULL_LENGTH, pa.binary()), _length(size)), pc.if_else(null, empty, numbers)]


def _variable(values: pa.Array) -> list[Any]:
    lengths = pc.binary_length(values).fill_null(-1)
    return [_swapped(_array("i", lengths)), values.fill_null(b"") if values.null_count else values]


def _as_integers(kind: Kind, values: pa.Array) -> tuple[pa.Array, str]:
    if kind in INTEGERS:
        type_, code = INTEGERS[kind]
        return values.cast(type_), code
    if kind in FLOATS:
        type_, bits, code = FLOATS[kind]
        return values.cast(type_).view(bits), code
    if kind is Kind.DATE:
        return pc.subtract_checked(
            values.cast(pa.date32()).view(pa.int32()), pa.scalar(EPOCH_2000_DAYS, pa.int32())
        ), "i"
    whole = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    return pc.subtract_checked(whole, pa.scalar(EPOCH_2000_US)), "q"


def _length(size: int) -> pa.Scalar:
    return pa.scalar(struct.pack("!i", size), pa.binary())


def _array(code: str, whole: pa.Array) -> array[int]:
    """What stands at nulls is whatever the buffer has there."""
    found = array(code)
    size = found.itemsize
    found.frombytes(memoryview(whole.buffers()[1])[whole.offset * size : (whole.offset + len(whole)) * size])
    return found


def _swapped(numbers: array[int]) -> pa.Array:
    """In network order, each as bytes of its own."""
    numbers.byteswap()
    size, count = numbers.itemsize, len(numbers)
    return pa.Array.from_buffers(pa.binary(), count, [None, _offsets(size, count), pa.py_buffer(numbers)])


@lru_cache(KEPT_SIZES)
def _offsets(size: int, count: int) -> pa.Buffer:
    return pa.py_buffer(array("i", range(0, size * (count + 1), size)))


@lru_cache(KEPT_SIZES)
def _numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())
