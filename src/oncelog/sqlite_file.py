"""A SQLite file that several processes write to: how it is opened.

Owns the settings that everybody must agree on: the write-ahead log, so that readers and the writer do not wait for each
other, and `synchronous=FULL`, so that a commit survives a power failure. It knows no tables.
"""

from __future__ import annotations

import os
import sqlite3
from time import monotonic, sleep
from typing import Any, Final, TypeVar

RETRY_S: Final = 0.01
RESULT_CODE: Final = 0xFF  # the lower byte of an extended code

AnyConnection = TypeVar("AnyConnection", bound=sqlite3.Connection)


def connect(
    path: str, *, timeout_s: float, factory: type[AnyConnection], uri: bool = False, check_same_thread: bool = True
) -> AnyConnection:
    """Others' locks are waited for up to `timeout_s`, here and later. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        path,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=check_same_thread,
        factory=factory,
        uri=uri,
    )
    try:
        use_write_ahead_log(connection, timeout_s)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def use_write_ahead_log(connection: sqlite3.Connection, timeout_s: float) -> None:
    """SQLite does not wait for a lock when two processes change a new file's journal mode at the same time: one of them
    is refused at once, and finds it changed when it asks again."""
    deadline = monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_locked(error) or monotonic() >= deadline:
                raise
        else:
            return
        sleep(RETRY_S)


def why_not_opened(path: Any, error: sqlite3.Error) -> str:
    """What SQLite does not say: it opens no file whose folder is missing, and no folder."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"there is no folder {folder!r}"
    return "it is a folder" if os.path.isdir(path) else str(error)


def is_locked(error: sqlite3.Error) -> bool:
    return error.sqlite_errorcode & RESULT_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
