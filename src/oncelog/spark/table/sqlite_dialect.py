"""SQLite's side of the statements, and which of its columns keep a value as it is.

A column of SQLite has an affinity, by which it silently turns values into others: text that looks like a number becomes
one in a column of numbers. So what is allowed goes by affinity.
"""

from __future__ import annotations

from typing import Final

from oncelog.spark.table.columns import INTEGERS, Column, Kind
from oncelog.spark.table.dialect import ATTEMPT, ORDINAL, Dialect
from oncelog.spark.table.layout import Found, Layout
from oncelog.spark.table.names import quote
from oncelog.spark.table.settings import Upsert

INTEGER, TEXT, BLOB, REAL, NUMERIC = "INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC"
STAGED: Final = {
    Kind.TEXT: TEXT,
    Kind.BYTES: BLOB,
    **dict.fromkeys(INTEGERS, INTEGER),
    Kind.FLOAT32: REAL,
    Kind.FLOAT64: REAL,
    Kind.DECIMAL: TEXT,
    Kind.BOOLEAN: INTEGER,
    Kind.TIMESTAMP: TEXT,
    Kind.LOCAL_TIMESTAMP: TEXT,
    Kind.DATE: TEXT,
    Kind.NOTHING: BLOB,
}
TAKES: Final = {
    Kind.TEXT: {TEXT, BLOB},
    Kind.BYTES: {BLOB},
    **{kind: {INTEGER, NUMERIC, BLOB} for kind in INTEGERS},
    Kind.FLOAT32: {REAL, NUMERIC, BLOB},
    Kind.FLOAT64: {REAL, NUMERIC, BLOB},
    Kind.DECIMAL: {TEXT, BLOB},
    Kind.BOOLEAN: {INTEGER, NUMERIC, BLOB},
    **{kind: {TEXT, NUMERIC, BLOB} for kind in (Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.DATE)},
}
STAGE_SCHEMA: Final = "stage"
STAGE_TABLE: Final = "staged"


class SqliteDialect(Dialect):
    now_ms = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    for_update = ""
    staged_types = STAGED

    def value(self, name: str) -> str:
        return f":{name}"

    def escaped(self, identifiers: str) -> str:
        return identifiers

    def among_attempts(self) -> str:
        return f"{ATTEMPT} IN (SELECT value FROM json_each({self.value('attempts')}))"

    def newest(self, layout: Layout, stage: str) -> str:
        """All, in order: each row meets what the rows before it have left. WHERE also keeps ON from being a join's."""
        assert isinstance(layout.write, Upsert)
        return f"{stage} WHERE {self.among_attempts()} ORDER BY {ATTEMPT}, {ORDINAL}"

    def newest_alone(self, layout: Layout, stage: str) -> str:
        assert isinstance(layout.write, Upsert)
        key = ", ".join(self.staged(layout, layout.place(name)) for name in layout.write.key)
        ranked = (
            f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {self.order_of_newest(layout)}) AS newness "
            f"FROM {stage} WHERE {self.among_attempts()}"
        )
        return f"(SELECT * FROM ({ranked}) WHERE newness = 1) AS newest"

    def delete_known(self, layout: Layout, newest: str, condition: str) -> str:
        assert isinstance(layout.write, Upsert)
        target, key = layout.target.sql, [quote(name) for name in layout.write.key]
        known = ", ".join(f"known.{name}" for name in key)
        return (
            f"DELETE FROM {target} WHERE ({', '.join(key)}) IN "
            f"(SELECT {known} FROM {newest} JOIN {target} AS known ON {condition})"
        )

    def created_type(self, column: Column) -> str:
        return STAGED[column.kind]

    def casts(self, layout: Layout, found: Found) -> tuple[tuple[str | None, ...], list[str]]:
        misfits = []
        for column in layout.columns:
            there = None if column.name == layout.delete_when else found.columns.get(column.name)
            if there is None or column.kind is Kind.NOTHING or affinity(there.type) in TAKES[column.kind]:
                continue
            misfits.append(
                f"its column {column.name!r} is declared {there.type or '(nothing)'}, by which SQLite would change "
                f"values of type {column.type}: declare it {STAGED[column.kind]}"
            )
        if isinstance(layout.write, Upsert) and layout.write.version is not None:
            version = layout.columns[layout.place(layout.write.version)]
            if version.kind is Kind.DECIMAL:
                misfits.append(f"the version {version.name!r} is a decimal, which SQLite compares as text: cast it")
        return (None,) * len(layout.columns), misfits


def affinity(declared: str) -> str:
    """SQLite's own rules, in their order."""
    text = declared.upper()
    if "INT" in text:
        return INTEGER
    if any(part in text for part in ("CHAR", "CLOB", "TEXT")):
        return TEXT
    if not text or "BLOB" in text:
        return BLOB
    if any(part in text for part in ("REAL", "FLOA", "DOUB")):
        return REAL
    return NUMERIC
