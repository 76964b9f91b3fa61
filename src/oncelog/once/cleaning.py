"""Marks of messages that cannot come again take room for nothing: they go by age, a bounded step at a time.

A step looks at a stretch of the table in the order of its key and deletes what is old there; the next goes on where it
ended. So no index on age is needed, which every message would pay for.
"""

from __future__ import annotations

from typing import Any

from oncelog.client.arguments import FOREVER_S, shown
from oncelog.once.database import Database
from oncelog.once.dead_letters import DEAD_LETTERS
from oncelog.once.state_guard import STATES
from oncelog.once.token import TOKENS

STEP = 1_000
START: tuple[int, Any] = (-1, "")
HAVE_STATE = (STATES, TOKENS)


class Cleaner:
    """Deletes rows of one table of marks that have not changed for a while. Unprocessed ones stay."""

    def __init__(self, database: Database, table: str) -> None:
        self._database = database
        self._reached = START
        name, dialect = database.tables.name(table), database.dialect
        settled = " AND state <> 'unprocessed'" if table in HAVE_STATE else ""
        after = f"FROM {name} WHERE (source, id) > (:source, :id)"
        self._end = f"SELECT source, id {after} ORDER BY source, id LIMIT 1 OFFSET {STEP - 1}"
        self._delete = f"DELETE {after} {{until}} AND changed_at_ms < {dialect.now_ms} - :age_ms{settled} RETURNING 1"

    def step(self, age_ms: int) -> int:
        """How many rows were deleted among the next ones."""
        values = {"source": self._reached[0], "id": self._reached[1]}
        with self._database.transaction() as transaction:
            end = transaction.run(self._end, values)
            until = "AND (source, id) <= (:end_source, :end_id)" if end else ""
            bounds = {"end_source": end[0][0], "end_id": end[0][1]} if end else {}
            deleted = transaction.run(self._delete.format(until=until), {**values, **bounds, "age_ms": age_ms})
        self._reached = end[0] if end else START
        return len(deleted)

    @property
    def is_at_start(self) -> bool:
        return self._reached == START


def clean_dead_letters(database: Database, age_ms: int) -> int:
    """Delete some of those that were sent long ago."""
    table, dialect = database.tables.name(DEAD_LETTERS), database.dialect
    statement = (
        f"DELETE FROM {table} WHERE number IN (SELECT number FROM {table} "
        f"WHERE sent_at_ms < {dialect.now_ms} - :age_ms ORDER BY number LIMIT {STEP}) RETURNING 1"
    )
    with database.transaction() as transaction:
        return len(transaction.run(statement, {"age_ms": age_ms}))


def clean(database: Any, table: str, *, older_than_s: float) -> int:
    """One pass over a table (`messages`, `states`, `tokens` or `versions`, for all scopes), in bounded transactions."""
    limit_ms = age_ms(older_than_s, "older_than_s")
    cleaner = Cleaner(Database.of(database), table)
    deleted = cleaner.step(limit_ms)
    while not cleaner.is_at_start:
        deleted += cleaner.step(limit_ms)
    return deleted


def age_ms(given_s: Any, name: str) -> int:
    """How old a mark may become. Below 0 all of them would be too old, also the newest."""
    is_number = isinstance(given_s, int | float) and not isinstance(given_s, bool)
    if not is_number or not given_s >= 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {shown(given_s)}")
    return int(min(given_s, FOREVER_S) * 1_000)
