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
SHOWN_COLUMNS: Final = 6
SHOWN_OF_A_COLUMN: Final = 40


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
                found = pc.index(values.is_null(), True).as_py()
                why = "says whether it deletes" if column.name == layout.delete_when else "tells rows apart"
                raise BadValue(
                    f"the row with {_described(batch, layout, found, place)} (row {row + found} of the task) has no "
                    f"{column.name!r}, which {why}: filter such rows out, or fill them"
                )
            if column.kind is Kind.TEXT and not keeps_nul and _has_nul(values):
                if nul_replacement is None:
                    raise _nul(batch, layout, place, row)
                arrays[place] = pc.replace_substring(values, NUL, nul_replacement)
            if column.kind in (Kind.FLOAT32, Kind.FLOAT64) and not keeps_nan:
                found = pc.index(pc.is_nan(values), True).as_py()
                if found >= 0:
                    raise BadValue(
                        f"column {column.name!r} of the row with {_described(batch, layout, found, place)} (row "
                        f"{row + found} of the task) is NaN, which SQLite turns into NULL: use nanvl() to say what it "
                        "should be"
                    )
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


def _nul(batch: pa.RecordBatch, layout: Layout, place: int, row: int) -> BadValue:
    values = batch.column(place)
    found = pc.index(pc.match_substring(values, NUL), True).as_py()
    return BadValue(
        f"column {layout.columns[place].name!r} of the row with {_described(batch, layout, found, place)} (row "
        f"{row + found} of the task) has a NUL character, which PostgreSQL cannot keep in text: "
        f"{values[found].as_py()[:SHOWN_CHARACTERS]!r}. Write the column as binary, or set the option nul.replacement"
    )


def _described(batch: pa.RecordBatch, layout: Layout, row: int, wrong: int) -> str:
    """A row by its other columns, those that tell rows apart first."""
    required = required_columns(layout.write)
    places = [place for place in range(len(layout.columns)) if place != wrong]
    places.sort(key=lambda place: layout.columns[place].name not in required)
    shown = [f"{layout.columns[place].name}={_short(batch.column(place)[row])}" for place in places[:SHOWN_COLUMNS]]
    rest = ", ..." if len(places) > SHOWN_COLUMNS else ""
    return (", ".join(shown) + rest) or "no other column"


def _short(value: pa.Scalar) -> str:
    text = "null" if not value.is_valid else repr(value.as_py()) if _is_text(value.type) else str(value)
    return text if len(text) <= SHOWN_OF_A_COLUMN else text[: SHOWN_OF_A_COLUMN - 3] + "..."


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))
