"""Where SQLite and PostgreSQL say the same thing differently. Pure text: opens nothing, runs nothing.

Statements are written once, with `:name` for values, which both sides understand. Many rows travel as one JSON value,
so that a statement's text never depends on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    now_ms: str
    """The database's own clock, asked once per statement: leases of workers on many machines need one clock."""
    each_value: str
    """A table with the column `value`, from the JSON array `:rows` of plain values."""
    each_row: str
    """The same from an array of arrays; `field` reads from its rows."""
    for_update: str
    skip_locked: str
    bytes_type: str
    id_type: str
    """Of message ids: SQLite keeps numbers as numbers there, which makes the default ids small."""
    serial_key: str
    ids_are_text: bool
    table_options: str

    def field(self, index: int, kind: str = "TEXT") -> str:
        if self.name == "sqlite":
            return f"json_extract(value, '$[{index}]')"
        return f"CAST(value ->> {index} AS {kind})"


SQLITE = Dialect(
    name="sqlite",
    now_ms="(SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
    each_value="json_each(:rows)",
    each_row="json_each(:rows)",
    for_update="",
    skip_locked="",
    bytes_type="BLOB",
    id_type="",
    serial_key="INTEGER PRIMARY KEY AUTOINCREMENT",
    ids_are_text=False,
    table_options=" WITHOUT ROWID",
)

POSTGRESQL = Dialect(
    name="postgresql",
    now_ms="(SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT))",
    each_value="json_array_elements_text(CAST(:rows AS json))",
    each_row="json_array_elements(CAST(:rows AS json))",
    for_update=" FOR UPDATE",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    bytes_type="BYTEA",
    id_type="TEXT",
    serial_key="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    ids_are_text=True,
    table_options="",
)
