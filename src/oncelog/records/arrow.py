"""Fetched records as Arrow tables, without a Python object for any record. The only module that knows pyarrow's reading
side; `arrow_columns` knows the writing one.

pyarrow is imported on the first call, so that nobody else pays for it: `record_schema()` is that call for whoever must
not be kept waiting later. Arrays are made of buffers, because `pa.array` and `pa.scalar` import pandas where it is
installed, which takes seconds. What is a record, and which of them a reader may
see, was decided by the cursor that took the columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING

from oncelog.named_tuple import NamedTuple
from oncelog.records.model import BinaryColumn, ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


MAX_KNOWN_TOPICS = 256
"""Of so many topics the name is kept as Arrow wants it."""


class TakenColumns(NamedTuple):
    """What `RecordCursor.take_table` took, and from where."""

    topic: str
    partition: int
    columns: ColumnBuffers


@cache
def record_schema() -> pa.Schema:
    """The columns of `table_of`. Timestamps are instants in milliseconds since 1970; -1 where none was given."""
    import pyarrow as pa

    import_module("pyarrow.compute")  # the first cast would import it
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("header", header, nullable=False)), nullable=False),
        ]
    )


def table_of(taken: Iterable[TakenColumns]) -> pa.Table:
    """One table of all that was taken, in this order; the columns are its memory, nothing is copied."""
    import pyarrow as pa

    chunks = [_record_batch(each) for each in taken if each.columns.record_count]
    return pa.Table.from_batches(chunks, record_schema())


def _record_batch(taken: TakenColumns) -> pa.RecordBatch:
    import pyarrow as pa

    schema = record_schema()
    columns = taken.columns
    count = columns.record_count
    arrays = [
        pa.DictionaryArray.from_buffers(
            schema.field("topic").type, count, [None, _repeated(0, count)], _dictionary(taken.topic)
        ),
        pa.Array.from_buffers(pa.int32(), count, [None, _repeated(taken.partition, count)]),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(schema.field("timestamp").type, count, [None, pa.py_buffer(columns.timestamps)]),
        _binary(columns.keys),
        _binary(columns.values),
        _headers(columns, schema.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache(MAX_KNOWN_TOPICS)
def _dictionary(topic: str) -> pa.Array:
    return _strings([topic])


def _strings(texts: list[str]) -> pa.Array:
    import pyarrow as pa

    data = [text.encode() for text in texts]
    offsets = array("i", accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def _repeated(number: int, count: int) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(array("i", [number]) * count)


def _headers(columns: ColumnBuffers, list_type: pa.ListType) -> pa.Array:
    import pyarrow as pa

    headers = _header_items(columns, list_type) if columns.header_keys.length else _no_header_items()
    buffers = [None, pa.py_buffer(columns.header_offsets)]
    return pa.Array.from_buffers(list_type, columns.record_count, buffers, children=[headers])


def _header_items(columns: ColumnBuffers, list_type: pa.ListType) -> pa.Array:
    import pyarrow as pa

    parts = [_text(columns.header_keys), _binary(columns.header_values)]
    return pa.StructArray.from_arrays(parts, fields=list(list_type.value_type))


@cache
def _no_header_items() -> pa.Array:
    import pyarrow as pa

    fields = list(record_schema().field("headers").type.value_type)
    return pa.StructArray.from_arrays([_strings([]), _strings([]).cast(pa.binary())], fields=fields)


def _binary(column: BinaryColumn) -> pa.Array:
    import pyarrow as pa

    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), column.length, buffers, null_count=column.null_count)


def _text(column: BinaryColumn) -> pa.Array:
    """Header keys as strings. One that is not UTF-8 is shown as Java shows it, with replacement characters."""
    import pyarrow as pa

    keys = _binary(column)
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return _strings([key.decode("utf-8", "replace") for key in keys.to_pylist()])
