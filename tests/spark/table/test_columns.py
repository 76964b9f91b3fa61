"""Spark's types, and which columns of a database take them."""

from __future__ import annotations

import pytest

from oncelog.spark.table.columns import Column, Kind, columns_of
from oncelog.spark.table.dialect import Dialect
from oncelog.spark.table.errors import UnfitTable
from oncelog.spark.table.layout import Found, FoundColumn, Layout
from oncelog.spark.table.names import TableName
from oncelog.spark.table.postgres_dialect import STAGED as STAGED_IN_POSTGRES
from oncelog.spark.table.postgres_dialect import PostgresDialect
from oncelog.spark.table.settings import Insert, Upsert
from oncelog.spark.table.sqlite_dialect import STAGED as STAGED_IN_SQLITE
from oncelog.spark.table.sqlite_dialect import SqliteDialect, affinity


def test_types_are_read_as_spark_writes_them() -> None:
    fields = [("a", "bigint"), ("b", "decimal(10,2)"), ("c", "string collate UTF8_LCASE"), ("d", "varchar(20)")]
    assert columns_of(fields) == (
        Column("a", Kind.INT64),
        Column("b", Kind.DECIMAL, 10, 2),
        Column("c", Kind.TEXT),
        Column("d", Kind.TEXT),
    )


@pytest.mark.parametrize("type_name", ["array<int>", "map<string,int>", "struct<a:int>", "variant", "interval day"])
def test_a_type_without_a_column_of_its_kind(type_name: str) -> None:
    with pytest.raises(UnfitTable, match=r"column 'x' is of type .*to_json"):
        columns_of([("x", type_name)])


def test_names_are_there_and_different() -> None:
    with pytest.raises(UnfitTable, match="two columns of one name: a"):
        columns_of([("a", "int"), ("a", "string")])
    with pytest.raises(UnfitTable, match="no columns"):
        columns_of([])


def test_every_kind_can_be_staged() -> None:
    assert set(STAGED_IN_POSTGRES) == set(STAGED_IN_SQLITE) == set(Kind)


def misfits(dialect: Dialect, type_name: str, there: FoundColumn) -> list[str]:
    layout = Layout(TableName("t"), columns_of([("x", type_name)]), Insert(()))
    return dialect.casts(layout, Found(TableName("t"), {"x": there}, frozenset()))[1]


@pytest.mark.parametrize(
    ("type_name", "there", "fits"),
    [
        ("bigint", "int8", True),
        ("bigint", "int4", False),
        ("smallint", "int4", True),
        ("double", "float4", False),
        ("float", "float8", True),
        ("string", "uuid", True),
        ("string", "int4", False),
        ("string", "_text", False),
        ("timestamp", "timestamp", False),
        ("timestamp_ntz", "timestamptz", False),
        ("binary", "text", False),
        ("void", "int4", True),
    ],
)
def test_what_a_column_of_postgresql_takes(type_name: str, there: str, fits: bool) -> None:
    assert bool(misfits(PostgresDialect(), type_name, FoundColumn("x", there, there))) is not fits


@pytest.mark.parametrize(
    ("type_name", "precision", "scale", "fits"),
    [
        ("decimal(10,2)", 10, 2, True),
        ("decimal(10,2)", 11, 2, True),
        ("decimal(10,2)", 11, 4, False),  # one digit before the point is missing
        ("decimal(10,2)", 10, 1, False),
        ("bigint", 19, 0, True),
        ("bigint", 18, 0, False),
        ("int", 12, 2, True),
    ],
)
def test_digits_that_a_numeric_has_room_for(type_name: str, precision: int, scale: int, fits: bool) -> None:
    there = FoundColumn("x", "numeric", "numeric", precision=precision, scale=scale)
    assert bool(misfits(PostgresDialect(), type_name, there)) is not fits


@pytest.mark.parametrize(
    ("declared", "expected"),
    [("BIGINT", "INTEGER"), ("VARCHAR(9)", "TEXT"), ("", "BLOB"), ("DOUBLE", "REAL"), ("DECIMAL(9,2)", "NUMERIC")],
)
def test_affinities(declared: str, expected: str) -> None:
    assert affinity(declared) == expected


@pytest.mark.parametrize(
    ("type_name", "declared", "fits"),
    [
        ("string", "TEXT", True),
        ("string", "INTEGER", False),  # '007' would become 7
        ("decimal(38,0)", "DECIMAL", False),  # would become a float
        ("bigint", "REAL", False),
        ("timestamp", "TIMESTAMP", True),
        ("boolean", "BOOLEAN", True),
        ("binary", "TEXT", False),
    ],
)
def test_what_a_column_of_sqlite_keeps_as_it_is(type_name: str, declared: str, fits: bool) -> None:
    assert bool(misfits(SqliteDialect(), type_name, FoundColumn("x", declared, declared))) is not fits


def test_sqlite_cannot_compare_decimals() -> None:
    columns = columns_of([("id", "int"), ("v", "decimal(5,0)")])
    layout = Layout(TableName("t"), columns, Upsert(("id",), "v"))
    found = {"id": FoundColumn("id", "INT", "INT"), "v": FoundColumn("v", "TEXT", "TEXT")}
    assert "compares as text" in SqliteDialect().casts(layout, Found(TableName("t"), found, frozenset()))[1][0]
