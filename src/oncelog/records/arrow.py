"""Record batches as Arrow tables, without a Python object for any record. The only module that knows pyarrow.

pyarrow is imported on the first call, so that nobody else pays for it. Reads batches as a fetch returns them:
consecutive, the last one perhaps cut off, control batches among them. Which transactions were aborted is for the
caller to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.errors import CorruptMessage
from oncelog.records import kernel
from oncelog.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES, records_payload
from oncelog.records.model import HEADER_SIZE, BinaryColumn, Buffer, ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

CHUNK_BYTES = 16 * 1024 * 1024
"""A chunk of the table ends with the batch that takes it past this many bytes of records: far from the 2 GiB that
Arrow's 32-bit offsets allow, and small enough for its memory to be used again."""


def record_schema() -> pa.Schema:
    """The columns of `decode_table`. Timestamps are instants in milliseconds since 1970; -1 where none was given."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("header", header, nullable=False)), nullable=False),
        ]
    )


def decode_table(
    batches: Buffer,
    *,
    first_offset: int = 0,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> pa.Table:
    """The records of consecutive batches from `first_offset` on, as a table with the columns of `record_schema`.

    A fetch begins with the batch that holds the wanted offset, so records before it may come along. Raises
    CorruptMessage where a whole batch has a wrong CRC, rather than skip it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    headers, good_bytes = kernel.scan(batches, 0, len(batches), True)
    _require_cut_off(batches, good_bytes)
    columns = kernel.Columns()
    chunks: list[pa.RecordBatch] = []
    position = 0
    for header in headers:
        if not header.is_control and header.last_offset >= first_offset:
            payload = records_payload(batches, header, position, max_decompressed_bytes=max_decompressed_bytes)
            kernel.decode_columns(payload, header, columns)
            if columns.payload_bytes >= CHUNK_BYTES:
                chunks.append(_record_batch(columns.finish()))
        position += header.size_bytes
    if columns.record_count:
        chunks.append(_record_batch(columns.finish()))
    table = pa.Table.from_batches(chunks, record_schema())
    unwanted = pc.sum(pc.less(table.column("offset"), first_offset)).as_py() or 0  # all at the front
    return table.slice(unwanted)


def _require_cut_off(batches: Buffer, good_bytes: int) -> None:
    """The scan stops at a batch that is cut off, which is normal at the end of a fetch, or bad, which is not."""
    try:
        header = kernel.parse_header(batches, good_bytes)
    except CorruptMessage:
        if len(batches) - good_bytes < HEADER_SIZE:
            return
        raise
    if header.size_bytes <= len(batches) - good_bytes:
        raise CorruptMessage(
            f"the batch at offset {header.base_offset} has a wrong CRC32C, or format {header.magic} instead of 2"
        )


def _record_batch(buffers: ColumnBuffers) -> pa.RecordBatch:
    import pyarrow as pa

    schema = record_schema()
    count = buffers.record_count
    header_type = schema.field("headers").type.value_type
    headers = pa.StructArray.from_arrays(
        [_text(buffers.header_keys), _binary(buffers.header_values)], fields=list(header_type)
    )
    arrays = [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(buffers.offsets)]),
        pa.Array.from_buffers(schema.field("timestamp").type, count, [None, pa.py_buffer(buffers.timestamps)]),
        _binary(buffers.keys),
        _binary(buffers.values),
        pa.Array.from_buffers(
            schema.field("headers").type, count, [None, pa.py_buffer(buffers.header_offsets)], children=[headers]
        ),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
