"""Arrow tables from consecutive batches. On both kernels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage, InvalidRecord
from oncelog.records import arrow
from oncelog.records.arrow import decode_table, record_schema
from oncelog.records.batch import ControlMarker, Record, build_batch, build_control_batch, decode_records
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


@quick
@given(st.lists(BATCHES_OF_ROWS, max_size=4), st.integers(0, 4))
def test_the_table_holds_every_record(kernel: ModuleType, many: list[Any], codec: int) -> None:
    data, records = consecutive(*many, codec=codec)
    table = decode_table(data)
    assert table.schema == record_schema()
    assert rows_of(table) == records


def test_reading_starts_at_the_wanted_offset(kernel: ModuleType) -> None:
    data, records = consecutive([(1, b"k", b"%d" % n, ()) for n in range(5)], [(2, None, b"x", ())] * 3)
    for first_offset in range(10):
        assert rows_of(decode_table(data, first_offset=first_offset)) == records[first_offset:]


def test_control_batches_are_skipped(kernel: ModuleType) -> None:
    marker = ControlMarker(commit=True, coordinator_epoch=0)
    data = bytes(build_batch([(1, b"k", b"v", ())]))
    data += build_control_batch(marker, producer_id=1, producer_epoch=0, timestamp_ms=2, base_offset=1)
    data += build_batch([(3, b"k", b"w", ())], base_offset=2)
    assert [record.offset for record in rows_of(decode_table(data))] == [0, 2]


def test_a_last_batch_that_is_cut_off_is_left_out(kernel: ModuleType) -> None:
    data, records = consecutive([(1, b"k", b"v", ())], [(1, b"k", b"w", ())])
    size = len(data) // 2
    for cut in range(size, 2 * size):
        assert rows_of(decode_table(data[:cut])) == records[:1]


@pytest.mark.parametrize("at", [8, 11, 16, 30, 65])
def test_a_damaged_batch_is_not_skipped(kernel: ModuleType, at: int) -> None:
    data, _ = consecutive([(1, b"k", b"v", ())], [(1, b"k", b"w", ())], [(1, b"k", b"x", ())])
    broken = bytearray(data)
    broken[len(data) // 3 + at] ^= 0xFF if at == 8 else 0x01
    with pytest.raises(CorruptMessage):
        decode_table(broken)


def test_decompression_is_bounded(kernel: ModuleType) -> None:
    data, _ = consecutive([(1, b"k", bytes(5_000), ())], codec=4)
    with pytest.raises(InvalidRecord):
        decode_table(data, max_decompressed_bytes=4_000)


def test_large_tables_come_in_chunks(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CHUNK_BYTES", 100)
    data, records = consecutive(*([(n, b"k", b"v" * 30, (("h", b"x"),))] for n in range(20)))
    table = decode_table(data)
    assert table.column("value").num_chunks > 1
    assert rows_of(table) == records


def test_a_header_key_that_is_not_utf8_is_shown_with_replacements(kernel: ModuleType) -> None:
    data, _ = consecutive([(1, b"k", b"v", [("\udcff!", b"x"), ("fine", None)])])
    assert rows_of(decode_table(data))[0].headers == (("\ufffd!", b"x"), ("fine", None))
