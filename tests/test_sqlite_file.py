"""Several processes that open a new SQLite file at the same moment."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from oncelog.sqlite_file import connect


def locked() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


class Rivalled(sqlite3.Connection):
    """Another process changes the journal mode at the same time, and this one is refused."""

    refusals = [locked, locked]

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in statement and self.refusals:
            raise self.refusals.pop()()
        return super().execute(statement, *values)


def test_who_is_refused_while_another_changes_the_journal_mode_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("oncelog.sqlite_file.sleep", waits.append)
    connection = connect(str(tmp_path / "new.db"), timeout_s=30, factory=Rivalled)
    assert (len(waits), Rivalled.refusals) == (2, [])
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


def test_a_lock_that_is_never_released_is_an_error_in_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "held.db")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connect(path, timeout_s=0, factory=sqlite3.Connection)
    holder.close()


def test_what_is_not_about_locks_is_raised_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be read as one" * 20)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        connect(str(tmp_path / "text.db"), timeout_s=30, factory=sqlite3.Connection)
