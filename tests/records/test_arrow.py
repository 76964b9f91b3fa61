"""Arrow tables from consecutive batches. On both kernels."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.arrow import TakenColumns, record_schema, table_of
from oncelog.records.batch import Record, build_batch, decode_records
from tests.records.strategies import BATCHES_OF_ROWS, quick


def rows_of(table: pa.Table) -> list[Record]:
    table.validate(full=True)
    columns = [
        table.column("offset"),
        table.column("timestamp").cast("int64"),
        table.column("key"),
        table.column("value"),
    ]
    headers = [tuple((h["key"], h["value"]) for h in row) for row in table.column("headers").to_pylist()]
    return [Record(*row) for row in zip(*(column.to_pylist() for column in columns), headers, strict=True)]


def consecutive(*batches_of_rows: list[Any], codec: int = 0) -> tuple[bytes, list[Record]]:
    data, records = b"", []
    for rows in batches_of_rows:
        batch = build_batch(rows, base_offset=len(records), codec=codec)
        records += decode_records(batch)
        data += batch
    return data, records


def taken(kernel: ModuleType, data: Any, partition: int = 0, max_records: int | None = None) -> list[TakenColumns]:
    """Everything, at most `max_records` at once."""
    cursor = kernel.RecordCursor(data, "orders", partition, 0, False, None, True, 1 << 20)
    chunks = []
    while not cursor.is_exhausted:
        chunks.append(TakenColumns("orders", partition, cursor.take_table(max_records)))
    return chunks


@quick
@given(st.lists(BATCHES_OF_ROWS, max_size=4), st.integers(0, 4), st.integers(1, 50))
def test_the_table_holds_every_record(kernel: ModuleType, many: list[Any], codec: int, max_records: int) -> None:
    data, records = consecutive(*many, codec=codec)
    table = table_of(taken(kernel, data, max_records=max_records))
    assert table.schema == record_schema()
    assert rows_of(table) == records
    assert table.column("topic").to_pylist() == ["orders"] * len(records)


def test_a_table_takes_from_several_partitions(kernel: ModuleType) -> None:
    data, _ = consecutive([(1, b"k", b"v", ())] * 2)
    chunks = [
        *taken(kernel, data, 3),
        TakenColumns("other", 0, taken(kernel, data)[0].columns),
        *taken(kernel, data, 1),
    ]
    table = table_of(chunks)
    table.validate(full=True)
    assert table.column("topic").to_pylist() == ["orders"] * 2 + ["other"] * 2 + ["orders"] * 2
    assert table.column("partition").to_pylist() == [3, 3, 0, 0, 1, 1]
    assert table.column("offset").to_pylist() == [0, 1] * 3
    assert table.unify_dictionaries().combine_chunks().column("topic").unique().to_pylist() == ["orders", "other"]


def test_nothing_is_a_table_too(kernel: ModuleType) -> None:
    nothing = kernel.RecordCursor(b"", "orders", 0, 0, False, None, True, 1 << 20).take_table()
    for chunks in ([], [TakenColumns("orders", 0, nothing)]):
        assert (table_of(chunks).num_rows, table_of(chunks).schema) == (0, record_schema())


def test_a_header_key_that_is_not_utf8_is_shown_with_replacements(kernel: ModuleType) -> None:
    data, _ = consecutive([(1, b"k", b"v", [("\udcff!", b"x"), ("fine", None)])])
    assert rows_of(table_of(taken(kernel, data)))[0].headers == (("\ufffd!", b"x"), ("fine", None))


MAKE_TABLES = """
import sys
from oncelog.records.arrow import TakenColumns, record_schema, table_of
from oncelog.records.batch import build_batch
from oncelog.records.kernel import RecordCursor
record_schema()
before = "pyarrow" in sys.modules
first = set(sys.modules)
for headers in [()], [(("k", b"v"),)], [(("\\udcff", b"v"),)]:
    data = build_batch([(0, b"key", b"value", each) for each in headers], base_offset=0)
    cursor = RecordCursor(data, "orders", 0, 0, False, None, True, 1 << 20)
    table = table_of([TakenColumns("orders", 0, cursor.take_table(10))])
    assert table.num_rows == 1
print(before, sorted({name.partition(".")[0] for name in set(sys.modules) - first}))
"""


def test_tables_are_made_without_an_import_once_the_schema_is_known() -> None:
    """Above all not of pandas, which `pa.array` imports: within a call that has a timeout, it takes seconds."""
    done = subprocess.run([sys.executable, "-c", MAKE_TABLES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True []\n", "")
