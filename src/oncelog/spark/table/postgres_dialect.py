"""PostgreSQL's side of the statements, and which of its types can take what."""

from __future__ import annotations

from typing import Final

from oncelog.spark.table.columns import INTEGERS, Column, Kind
from oncelog.spark.table.dialect import ATTEMPT, Dialect
from oncelog.spark.table.layout import Found, FoundColumn, Layout
from oncelog.spark.table.settings import Upsert

NUMERIC: Final = "numeric"

STAGED: Final = {
    Kind.TEXT: 'TEXT COLLATE "C"',  # keys are sorted: by bytes, not by a language
    Kind.BYTES: "BYTEA",
    Kind.INT8: "SMALLINT",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INTEGER",
    Kind.INT64: "BIGINT",
    Kind.FLOAT32: "REAL",
    Kind.FLOAT64: "DOUBLE PRECISION",
    Kind.DECIMAL: "TEXT",  # travels as its digits, and is cast when it is published
    Kind.BOOLEAN: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.LOCAL_TIMESTAMP: "TIMESTAMP",
    Kind.DATE: "DATE",
    Kind.NOTHING: "TEXT",
}
TEXTS: Final = frozenset({"text", "varchar", "bpchar", "name"})
WRITTEN_AS_TEXT: Final = frozenset({"citext", "uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "ltree"})
TAKES: Final = {
    Kind.TEXT: TEXTS | WRITTEN_AS_TEXT,
    Kind.BYTES: frozenset({"bytea"}),
    Kind.INT8: frozenset({"int2", "int4", "int8", NUMERIC}),
    Kind.INT16: frozenset({"int2", "int4", "int8", NUMERIC}),
    Kind.INT32: frozenset({"int4", "int8", NUMERIC}),
    Kind.INT64: frozenset({"int8", NUMERIC}),
    Kind.FLOAT32: frozenset({"float4", "float8"}),
    Kind.FLOAT64: frozenset({"float8"}),
    Kind.DECIMAL: frozenset({NUMERIC}),
    Kind.BOOLEAN: frozenset({"bool"}),
    Kind.TIMESTAMP: frozenset({"timestamptz"}),
    Kind.LOCAL_TIMESTAMP: frozenset({"timestamp"}),
    Kind.DATE: frozenset({"date"}),
}
"""By name in the catalogue. Nothing that would change a value: no narrower number, no guess of a time zone."""


class PostgresDialect(Dialect):
    now_ms = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    for_update = " FOR UPDATE"
    staged_types = STAGED

    def value(self, name: str) -> str:
        return f"%({name})s"

    def escaped(self, identifiers: str) -> str:
        return identifiers.replace("%", "%%")

    def among_attempts(self) -> str:
        return f"{ATTEMPT} = ANY({self.value('attempts')})"

    def newest(self, layout: Layout, stage: str) -> str:
        """One row for each key: the same row twice in one statement is refused. Sorted, so that the index is written
        in its order, and those who write to one table take their locks in one order."""
        return self.newest_alone(layout, stage)

    def newest_alone(self, layout: Layout, stage: str) -> str:
        assert isinstance(layout.write, Upsert)
        key = ", ".join(self.staged(layout, layout.place(name)) for name in layout.write.key)
        return (
            f"(SELECT DISTINCT ON ({key}) * FROM {stage} WHERE {self.among_attempts()} "
            f"ORDER BY {key}, {self.order_of_newest(layout)}) AS newest"
        )

    def delete_known(self, layout: Layout, newest: str, condition: str) -> str:
        return f"DELETE FROM {self.escaped(layout.target.sql)} AS known USING {newest} WHERE {condition}"

    def collations(self, layout: Layout, found: Found) -> tuple[str | None, ...]:
        """Staged text has a collation of its own, and two that differ are not compared."""
        pairs = [found.columns.get(column.name) for column in layout.columns]
        return tuple(None if there is None else there.collation for there in pairs)

    def created_type(self, column: Column) -> str:
        if column.kind is Kind.DECIMAL:
            return f"NUMERIC({column.precision}, {column.scale})"
        return "TEXT" if column.kind is Kind.TEXT else STAGED[column.kind]

    def casts(self, layout: Layout, found: Found) -> tuple[tuple[str | None, ...], list[str]]:
        pairs = [(column, _target(layout, column, found)) for column in layout.columns]
        misfits = [misfit for column, there in pairs if there is not None and (misfit := _misfit(column, there))]
        return tuple(None if there is None else _cast(column, there) for column, there in pairs), misfits


def _target(layout: Layout, column: Column, found: Found) -> FoundColumn | None:
    return None if column.name == layout.delete_when else found.columns.get(column.name)


def _cast(column: Column, there: FoundColumn) -> str | None:
    """Without a length: the assignment that follows refuses what is too long, where a cast would cut it off."""
    if column.kind is Kind.DECIMAL:
        return NUMERIC
    needed = column.kind is Kind.NOTHING or (column.kind is Kind.TEXT and there.type not in TEXTS)
    return there.sql_type if needed else None


def _misfit(column: Column, there: FoundColumn) -> str | None:
    if column.kind is Kind.NOTHING or (column.kind is Kind.TEXT and there.is_free):
        return None
    if there.type not in TAKES[column.kind]:
        return f"its column {column.name!r} is of type {there.type}, the query's of {column.type}: {_advice(column)}"
    if there.type == NUMERIC and there.precision is not None and there.scale is not None:
        whole = INTEGERS.get(column.kind, column.precision - column.scale)
        if whole > there.precision - there.scale or column.scale > there.scale:
            return (
                f"its column {column.name!r} is numeric({there.precision},{there.scale}), too narrow for the query's "
                f"{column.type}: cast the query's column, or widen the table's"
            )
    return None


def _advice(column: Column) -> str:
    if column.kind is Kind.TIMESTAMP:
        return "make it timestamptz, or cast the query's column to timestamp_ntz in the time zone that you mean"
    return "cast the query's column to a type that fits"
