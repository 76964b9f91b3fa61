"""Values of all types reach both databases as they are, and those that cannot are named."""

from __future__ import annotations

import datetime
import math
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.copy_rows import encode
from oncelog.spark.table.errors import BadValue, UnfitTable
from oncelog.spark.table.layout import Layout
from oncelog.spark.table.ledger import Report, Staged
from oncelog.spark.table.names import TableName
from oncelog.spark.table.settings import Insert, Upsert
from oncelog.spark.table.values import checked
from oncelog.spark.table.writer import open_store
from tests.spark.table.support import Job, batch_of, settings_of

UTC = datetime.UTC
PAGE = (Path(__file__).parents[3] / "docs" / "spark-tables.md").read_text()
TYPES = {
    "id": "bigint", "i": "int", "s": "smallint", "y": "tinyint", "t": "string", "b": "binary", "d": "double",
    "f": "float", "o": "boolean", "n": "decimal(38,10)", "at": "timestamp", "local": "timestamp_ntz", "day": "date",
}  # fmt: skip
FIRST = (
    1, 2**31 - 1, -(2**15), -128, "it's \"quoted\",\n\\N\t\u2028 \U0001f600", b"\0\xff'\\x", -0.5,
    0.25, True, Decimal("-1234567890123456789012345678.0123456789"),
    datetime.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.date(1, 1, 1),
)  # fmt: skip
LAST = (
    2, -(2**31), 2**15 - 1, 127, "", b"", math.inf, -math.inf, False, Decimal("0E-10"),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime.datetime(9999, 12, 31),
    datetime.date(9999, 12, 31),
)  # fmt: skip
NULLS = (3, *[None] * (len(TYPES) - 1))


def test_postgresql_has_every_value_as_it_was(postgres_url: str) -> None:
    job = Job(settings_of(postgres_url, write="insert"), TYPES)
    job.run(0, [[FIRST, NULLS], [LAST]])
    job.run(1, [[NULLS]])
    assert job.look("SELECT * FROM orders ORDER BY id") == [FIRST, LAST, NULLS, NULLS]


def test_sqlite_has_what_stands_for_them(tmp_path: Path) -> None:
    job = Job(settings_of(f"sqlite:///{tmp_path}/a.db", write="insert"), TYPES)
    job.run(0, [[FIRST, NULLS], [LAST]])
    first, last, nulls = job.look("SELECT * FROM orders ORDER BY id")
    as_text = ("-1234567890123456789012345678.0123456789", "0001-01-01 00:00:00.000001Z")
    assert first == (*FIRST[:9], *as_text, "1969-12-31 23:59:59.999999", "0001-01-01")
    assert last[:9] == LAST[:9]
    assert nulls == NULLS


def test_text_becomes_what_the_column_is(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
        connection.execute("CREATE DOMAIN short AS varchar(3)")
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.things (id uuid PRIMARY KEY, body jsonb, mood mood, name short, x int)")
    types = {"id": "string", "body": "string", "mood": "string", "name": "string", "x": "void"}
    job = Job(settings_of(postgres_url, table="shop.things", key="id"), types)
    same = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
    job.run(0, [[(same, '{"a": 1}', "good", "abc", None), (same.lower(), "[2]", "bad", "abd", None)]])
    found = job.look("SELECT id::text, body, mood::text, name, x FROM shop.things")
    assert found == [(same.lower(), [2], "bad", "abd", None)]
    assert job.look("SELECT count(*) FROM shop.oncelog_batches") == [(1,)]
    for batch, bad in enumerate(
        [(same, "{", "good", "a", None), (same, "1", "odd", "a", None), (same, "1", "bad", "long", None)]
    ):
        with pytest.raises(BadValue, match="nothing of the batch was published") as failed:
            job.run(batch + 1, [[(same.replace("A", "B"), "2", "good", "b", None), bad]])
        if batch < 2:
            expected = f"id='{same}', body={bad[1]!r}, mood={bad[2]!r}, name='a'"
            assert str(failed.value).endswith(f"It is the row with {expected}")


def test_a_nul_in_text_is_named_or_replaced(postgres_url: str) -> None:
    types = {"id": "bigint", "name": "string"}
    job = Job(settings_of(postgres_url, write="insert"), types)
    with pytest.raises(
        BadValue, match=r"column 'name' of the row with id=2 \(row 1 of the task\) has a NUL .*'a\\x00b'"
    ):
        job.run(0, [[(1, "fine"), (2, "a\0b")]])
    Job(settings_of(postgres_url, write="insert", nul_replacement="?"), types).run(0, [[(1, "fine"), (2, "a\0b")]])
    assert job.look("SELECT name FROM orders ORDER BY id") == [("fine",), ("a?b",)]


def test_nan_in_sqlite_is_named(tmp_path: Path, postgres_url: str) -> None:
    types = {"id": "bigint", "price": "double"}
    with pytest.raises(BadValue, match=r"column 'price' of the row with id=2 \(row 1 of the task\) is NaN"):
        Job(settings_of(f"sqlite:///{tmp_path}/a.db", write="insert"), types).run(0, [[(1, None), (2, math.nan)]])
    job = Job(settings_of(postgres_url, write="insert"), types)
    job.run(0, [[(1, math.nan)]])
    assert math.isnan(job.look("SELECT price FROM orders")[0][0])


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Europe/Berlin", "America/New_York", "+05:30"])
def test_a_timestamp_in_sqlite_is_written_in_utc_whatever_the_sessions_time_zone(tmp_path: Path, zone: str) -> None:
    job = Job(settings_of(f"sqlite:///{tmp_path}/a.db", write="insert"), {"at": "timestamp"})
    planned = job.plan()
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=UTC)
    batch = pa.RecordBatch.from_arrays([pa.array([moment, None], pa.timestamp("us", zone))], names=["at"])
    with closing(open_store(job.settings)) as store:
        assert store.fill(planned.stage, planned.layout, 1, iter([batch])) == 2
    job.commit(planned, [Report(job.query, 0, planned.epoch, 0, Staged(0, 1, 2))])
    assert job.look("SELECT at FROM orders") == [("2026-01-31 12:00:00.000000Z",), (None,)]
    assert "`2026-01-31 12:00:00.000000Z`" in PAGE, "as the page says"


def test_a_row_without_its_key_is_named(url: str) -> None:
    job = Job(settings_of(url, key="id", version="v"), {"id": "string", "v": "bigint"})
    with pytest.raises(BadValue, match=r"the row with v=1 \(row 1 of the task\) has no 'id'"):
        job.run(0, [[("a", 1), (None, 1)]])
    with pytest.raises(BadValue, match=r"the row with id='a' \(row 0 of the task\) has no 'v'"):
        job.run(0, [[("a", None)]])


def test_a_row_is_named_by_its_other_columns_in_short() -> None:
    """Those that tell rows apart first."""
    types = {"note": "string", "at": "date", "id": "bigint", **{f"x{n}": "string" for n in range(6)}}
    layout = Layout(TableName("t"), columns_of(types.items()), Upsert(("id",), "at"))
    row = ("n" * 100, None, 7, "a", "b", "c", "d", "e", "f")
    with pytest.raises(BadValue) as failed:
        list(checked([batch_of(types, [row])], layout, nul_replacement=None, keeps_nul=True, keeps_nan=True))
    told = (
        f"the row with id=7, note='{'n' * 36}..., x0='a', x1='b', x2='c', x3='d', ... (row 0 of the task) has no 'at'"
    )
    assert str(failed.value).startswith(told)


def test_a_column_that_nothing_can_be_made_from(url: str) -> None:
    with pytest.raises(UnfitTable, match="type void"):
        Job(settings_of(url, write="insert"), {"id": "void"}).plan()


def test_who_may_not_write_is_told_so(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
        connection.execute("CREATE VIEW seen AS SELECT * FROM orders")
        connection.execute("GRANT SELECT, INSERT ON orders TO reader")
    types = {"id": "bigint", "name": "string"}
    with pytest.raises(UnfitTable, match="the user 'reader' may not UPDATE"):
        Job(settings_of(postgres_url, key="id", user="reader"), types).plan()
    with pytest.raises(UnfitTable, match="may not create tables in the schema 'public'"):
        Job(settings_of(postgres_url, write="insert", user="reader"), types).plan()
    with pytest.raises(UnfitTable, match="is not a table"):
        Job(settings_of(postgres_url, write="insert", table="seen"), types).plan()


ROWS = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        st.none() | st.binary(),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.datetimes(),
        st.none() | st.booleans(),
    ),
    min_size=1,
)
MANY = {"id": "bigint", "t": "string", "b": "binary", "d": "double", "at": "timestamp_ntz", "o": "boolean"}


def decoded(data: bytes) -> list[list[bytes | None]]:
    """What PostgreSQL reads, by the letter of its manual."""
    rows, place = [], 0
    while place < len(data):
        count, place = int.from_bytes(data[place : place + 2], "big"), place + 2
        row: list[bytes | None] = []
        for _ in range(count):
            size, place = int.from_bytes(data[place : place + 4], "big", signed=True), place + 4
            row.append(None if size < 0 else data[place : place + size])
            place += max(size, 0)
        rows.append(row)
    return rows


@given(rows=ROWS, skipped=st.integers(0, 3), is_upsert=st.booleans())
def test_encoded_rows_are_read_back(rows: list[tuple[Any, ...]], skipped: int, is_upsert: bool) -> None:
    """Also of a slice, whose buffers begin elsewhere."""
    write = Upsert(("id",), None) if is_upsert else Insert(())
    layout = Layout(TableName("t"), columns_of(MANY.items()), write)
    batch = batch_of(MANY, rows).slice(skipped)
    data = b"".join(bytes(chunk) for chunk in encode(batch, layout, 7, 100))
    found = decoded(data)
    assert len(found) == max(len(rows) - skipped, 0)
    for n, (row, (key, text, blob, _, _, flag)) in enumerate(zip(found, rows[skipped:], strict=True)):
        begin = [7, 100 + n] if is_upsert else [7]
        assert row[: len(begin)] == [number.to_bytes(8, "big") for number in begin]
        values = row[len(begin) :]
        assert values[0] == key.to_bytes(8, "big", signed=True)
        assert values[1] == (None if text is None else text.encode())
        assert values[2] == blob
        assert values[5] == (None if flag is None else bytes([flag]))


def test_a_large_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.spark.table.copy_rows.MAX_CHUNK_BYTES", 64)
    layout = Layout(TableName("t"), columns_of([("t", "string")]), Upsert(("t",), None))
    batch = batch_of({"t": "string"}, [(str(n) * 9,) for n in range(50)])
    chunks = [decoded(bytes(chunk)) for chunk in encode(batch, layout, 1, 0)]
    assert len(chunks) > 10
    rows = [row for chunk in chunks for row in chunk]
    assert [int.from_bytes(row[1] or b"", "big") for row in rows] == list(range(50))
    assert [row[2] for row in rows] == [(str(n) * 9).encode() for n in range(50)]


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    for url in ("postgresql://me:secret@127.0.0.1:1/shop", f"sqlite:///{tmp_path}/missing/shop.db"):
        with pytest.raises(Exception, match=r"cannot be (reached|opened)") as failed:
            Job(settings_of(url, write="insert"), {"id": "bigint"}).plan()
        assert "secret" not in str(failed.value)
        with closing(open_store(settings_of(url))) as store:
            assert store.is_outage(failed.value) is url.startswith("postgresql")
