"""Values that a database would refuse late, or change without a word: found in each batch before it is staged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncelog.spark.table.columns import Kind
from oncelog.spark.table.errors import BadValue
from oncelog.spark.table.layout import Layout
from oncelog.spark.table.settings import required_columns

NUL: Final = "\0"
SHOWN_CHARACTERS: Final = 80


def checked(
    batches: Iterable[pa.RecordBatch], layout: Layout, *, nul_replacement: str | None, keeps_nul: bool, keeps_nan: bool
) -> Iterator[pa.RecordBatch]:
    """The batches, with NUL characters replaced where that was asked for. Nothing else about them changes."""
    required = set(required_columns(layout.write))
    row = 0
    for batch in batches:
        arrays = list(batch.columns)
        for place, column in enumerate(layout.columns):
            values = arrays[place]
            if column.name in required and values.null_count:
                raise BadValue(
                    f"row {row + pc.index(values.is_null(), True).as_py()} of the task has no {column.name!r}, which "
                    "tells rows apart: filter such rows out, or fill them"
                )
            if column.kind is Kind.TEXT and not keeps_nul and _has_nul(values):
                arrays[place] = _without_nul(values, column.name, row, nul_replacement)
            if column.kind in (Kind.FLOAT32, Kind.FLOAT64) and not keeps_nan:
                _refuse_nan(values, column.name, row)
        row += batch.num_rows
        yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _has_nul(values: pa.Array) -> bool:
    """One pass over the bytes, without a look at the rows."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return False
    numbers = memoryview(offsets).cast("q" if pa.types.is_large_string(values.type) else "i")
    first, last = numbers[values.offset], numbers[values.offset + len(values)]
    return NUL.encode() in data.slice(first, last - first).to_pybytes()


def _without_nul(values: pa.Array, name: str, row: int, replacement: str | None) -> pa.Array:
    if replacement is not None:
        return pc.replace_substring(values, NUL, replacement)
    found = pc.index(pc.match_substring(values, NUL), True).as_py()
    text = values[found].as_py()
    raise BadValue(
        f"column {name!r} of row {row + found} of the task has a NUL character, which PostgreSQL cannot keep in text: "
        f"{text[:SHOWN_CHARACTERS]!r}. Write the column as binary, or set the option nul.replacement"
    )


def _refuse_nan(values: pa.Array, name: str, row: int) -> None:
    found = pc.index(pc.is_nan(values), True).as_py()
    if found >= 0:
        raise BadValue(
            f"column {name!r} of row {row + found} of the task is NaN, which SQLite turns into NULL: use nanvl() to "
            "say what it should be"
        )
