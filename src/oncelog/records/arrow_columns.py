"""The columns of an Arrow table as rows to be sent: which column is what, whether their types will do, and their
buffers for the kernel. Never sends anything, and copies only what it must: small chunks into larger ones, and types
that do not lie in memory as bytes behind offsets (views, dictionaries).

Needs pyarrow, so it is imported when a table comes, and nobody else pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import types

from oncelog.records import kernel
from oncelog.records.model import (
    NO_PARTITION,
    Buffer,
    BytesBuffers,
    HeaderBuffers,
    RowBuffers,
    TableError,
    TimestampBuffers,
)

PIECE_ROWS = 65_536
"""Rows of a piece that is cut from a larger chunk, or put together from smaller ones."""
PIECE_BYTES = 8 * 1024 * 1024
"""Chunks are not put together beyond this, whatever their rows."""

BYTES_TYPES = (
    "binary, string (also their large_ and _view forms), fixed_size_binary, a dictionary of these, or null;"
    " cast other types first"
)
HEADERS_TYPES = (
    "list<struct<key: string, value: binary>> or map<string, binary> (also large_list, and string for binary)"
)
TIMESTAMP_TYPES = "timestamp, or int64 of milliseconds since 1970"
PARTITION_TYPES = "an integer type"


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Consecutive rows of a table, as the kernel takes them."""

    first_row: int
    rows: kernel.RowSource
    partitions: Buffer | None
    """int32 each, `NO_PARTITION` where the row names none; None if there is no such column."""
    _keys: pa.Array | None
    _values: pa.Array

    def keys_and_values(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """One by one, for a partitioner of the user's own. Slow: a Python object for each."""
        keys = repeat(None, len(self._values)) if self._keys is None else _byte_list(self._keys)
        return zip(keys, _byte_list(self._values), strict=True)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table, and which of its columns are the fields of a record."""

    table: pa.Table
    key: str | None
    value: str
    headers: str | None
    timestamp: str | None
    partition: str | int | None
    """A column, or one partition for all rows."""

    @classmethod
    def of(
        cls,
        table: Any,
        *,
        key: str | None = None,
        value: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | int | None = None,
    ) -> TableColumns:
        """Columns that are not named are those with the name of the field, if there are such. Raises TableError for a
        name or a type that will not do, and for rows that no record can be made of.
        """
        if not isinstance(partition, str | int | None) or isinstance(partition, bool):
            raise TypeError(f"partition= takes a number or the name of a column, not {partition!r}")
        table = _as_table(table)
        value = _named(table, "value", value)
        if value is None:
            raise TableError(f"no column is called 'value', so name the one with the values; {_choice(table)}")
        columns = cls(
            table,
            _named(table, "key", key),
            value,
            _named(table, "headers", headers),
            _named(table, "timestamp", timestamp),
            partition if isinstance(partition, int) else _named(table, "partition", partition),
        )
        columns._check_types()
        columns._check_rows()
        return columns

    @property
    def row_count(self) -> int:
        return int(self.table.num_rows)

    @property
    def _partition_column(self) -> str | None:
        return self.partition if isinstance(self.partition, str) else None

    def _check_types(self) -> None:
        for field, name, fits, accepted in (
            ("key", self.key, _is_bytes, BYTES_TYPES),
            ("value", self.value, _is_bytes, BYTES_TYPES),
            ("headers", self.headers, _is_headers, HEADERS_TYPES),
            ("timestamp", self.timestamp, _is_timestamp, TIMESTAMP_TYPES),
            ("partition", self._partition_column, _is_partition, PARTITION_TYPES),
        ):
            if name is not None and not fits(self.table.schema.field(name).type):
                raise TableError(
                    f"column {name!r}, the {field}, is of type {self.table.schema.field(name).type};"
                    f" accepted is {accepted}"
                )

    def _check_rows(self) -> None:
        if self.timestamp is not None:
            self._check_least(self.timestamp, "timestamp", "records have no time before 1970")
        if self._partition_column is not None:
            self._check_least(self._partition_column, "partition", "partitions begin at 0")
        if self.headers is not None and not types.is_map(self.table.schema.field(self.headers).type):
            for chunk in self.table.column(self.headers).chunks:
                pairs = chunk.flatten()
                if pairs.null_count or pairs.field(0).null_count:
                    raise TableError(f"column {self.headers!r}, the headers, has a header that is null or has no key")

    def _check_least(self, name: str, field: str, rule: str) -> None:
        least = pc.min(self.table.column(name))
        if least.is_valid and least.cast(pa.int64()).as_py() < 0:
            raise TableError(f"column {name!r}, the {field}, has a row with {least}; {rule}")

    def greatest_partition(self) -> int | None:
        """The greatest partition that a row asks for, if any does."""
        if self._partition_column is None:
            return self.partition  # type: ignore[return-value]
        greatest: int | None = pc.max(self.table.column(self._partition_column)).as_py()
        return greatest

    def pieces(self, now_ms: int) -> Iterator[TablePiece]:
        """The rows in order, so many at a time that grouping them by partition stays in the processor's cache."""
        names = [self.key, self.value, self.headers, self.timestamp, self._partition_column]
        wanted = self.table.select(list(dict.fromkeys(name for name in names if name is not None)))
        first_row = 0
        for batch in _even_batches(wanted):
            yield self._piece(batch, first_row, now_ms)
            first_row += batch.num_rows

    def _piece(self, batch: pa.RecordBatch, first_row: int, now_ms: int) -> TablePiece:
        keys = None if self.key is None else _plain_bytes(batch.column(self.key))
        values = _plain_bytes(batch.column(self.value))
        rows = RowBuffers(
            batch.num_rows,
            now_ms,
            None if keys is None else _bytes_buffers(keys),
            _bytes_buffers(values),
            None if self.headers is None else _header_buffers(batch.column(self.headers)),
            None if self.timestamp is None else _timestamp_buffers(batch.column(self.timestamp)),
        )
        column = self._partition_column
        partitions = None if column is None else _partition_buffer(batch.column(column))
        return TablePiece(
            first_row,
            kernel.RowSource(rows),
            partitions,
            keys,
            values,
        )


def _as_table(given: Any) -> pa.Table:
    """pyarrow's own as it is; of others' tables (pandas, polars, DuckDB) what they export, mostly without a copy."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given).read_all()
    if hasattr(given, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(given)])
    raise TypeError(
        "send_table takes a pyarrow.Table, or what can be read as one: a DataFrame of pandas or polars, a relation of"
        f" DuckDB, whatever has __arrow_c_stream__; not {type(given).__name__}"
    )


def _named(table: pa.Table, field: str, name: str | None) -> str | None:
    if name is None:
        name = field if field in table.column_names else None
    elif not isinstance(name, str):
        raise TypeError(f"{field}= takes the name of a column (str), not {name!r}")
    elif name not in table.column_names:
        raise TableError(f"{field}={name!r} names no column; {_choice(table)}")
    if name is not None and table.column_names.count(name) > 1:
        raise TableError(f"{table.column_names.count(name)} columns are called {name!r}; rename all but one")
    return name


def _choice(table: pa.Table) -> str:
    return f"the table has {', '.join(map(repr, table.column_names)) or 'no columns'}"


def _even_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in batches of about `PIECE_ROWS`: larger chunks are cut, which costs nothing, small ones joined."""
    small: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in table.to_batches(max_chunksize=PIECE_ROWS):
        if not batch.num_rows:
            continue
        if small and (rows + batch.num_rows > PIECE_ROWS or size_bytes + batch.nbytes > PIECE_BYTES):
            yield small[0] if len(small) == 1 else pa.concat_batches(small)
            small, rows, size_bytes = [], 0, 0
        small.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
    if small:
        yield small[0] if len(small) == 1 else pa.concat_batches(small)


# ---------------------------------------------------------------------------------------------------- types


def _storage(kind: Any) -> Any:
    """What a dictionary or a type of the user's own really holds."""
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if types.is_dictionary(kind) else kind


def _is_bytes(kind: Any) -> bool:
    return _is_plain_bytes(_storage(kind))


def _is_plain_bytes(kind: Any) -> bool:
    return any(
        fits(kind)
        for fits in (
            types.is_binary,
            types.is_string,
            types.is_large_binary,
            types.is_large_string,
            types.is_binary_view,
            types.is_string_view,
            types.is_fixed_size_binary,
            types.is_null,
        )
    )


def _is_headers(kind: Any) -> bool:
    if types.is_map(kind):
        fields = [("key", kind.key_type), ("value", kind.item_type)]
    elif (types.is_list(kind) or types.is_large_list(kind)) and types.is_struct(kind.value_type):
        fields = [(field.name, field.type) for field in kind.value_type]
    else:
        return False
    return [name for name, _ in fields] == ["key", "value"] and all(_is_plain_bytes(each) for _, each in fields)


def _is_timestamp(kind: Any) -> bool:
    return bool(types.is_timestamp(kind) or types.is_int64(kind))


def _is_partition(kind: Any) -> bool:
    return bool(types.is_integer(kind))


# ---------------------------------------------------------------------------------------------------- buffers


def _plain_bytes(array: pa.Array) -> pa.Array:
    """The array with its bytes behind offsets, or of one fixed size."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        return _plain_bytes(array.dictionary).take(array.indices)  # pyarrow cannot decode one of views
    if types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    if types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array


def _bytes_buffers(array: pa.Array) -> BytesBuffers | None:
    """None if everything is null."""
    array = _plain_bytes(array)
    if types.is_null(array.type):
        return None
    validity, *others = array.buffers()
    if types.is_fixed_size_binary(array.type):
        return BytesBuffers(
            array.offset, len(array), validity, others[0] or b"", None, item_bytes=array.type.byte_width
        )
    is_large = types.is_large_binary(array.type) or types.is_large_string(array.type)
    offsets, data = others
    return BytesBuffers(array.offset, len(array), validity, data or b"", offsets, 8 if is_large else 4)


def _header_buffers(array: pa.Array) -> HeaderBuffers:
    validity, offsets, *_ = array.buffers()
    if types.is_map(array.type):
        keys, values = array.keys, array.items
    else:
        keys, values = array.values.field(0), array.values.field(1)
    return HeaderBuffers(
        array.offset,
        validity,
        offsets,
        8 if types.is_large_list(array.type) else 4,
        _bytes_buffers(keys) or _all_null(len(keys)),
        _bytes_buffers(values) or _all_null(len(values)),
    )


def _all_null(length: int) -> BytesBuffers:
    return BytesBuffers(0, length, bytes((length + 7) // 8), b"", None)


def _timestamp_buffers(array: pa.Array) -> TimestampBuffers:
    array = _milliseconds(array)
    validity, data = array.buffers()
    return TimestampBuffers(array.offset, validity, data)


def _milliseconds(array: pa.Array) -> pa.Array:
    if types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)  # finer times are cut to milliseconds
    return array.cast(pa.int64())


def _partition_buffer(array: pa.Array) -> Buffer:
    numbers = array.cast(pa.int32()).fill_null(NO_PARTITION)
    return memoryview(numbers.buffers()[1])[4 * numbers.offset :]


def _byte_list(array: pa.Array) -> list[bytes | None]:
    return _plain_bytes(array).cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]
