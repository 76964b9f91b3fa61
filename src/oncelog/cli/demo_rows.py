"""The rows that Spark has written into SQLite: how many, and which order each is of."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from oncelog.audit.account import Audit
from oncelog.audit.ids import parse_id
from oncelog.types import TopicPartition

BUSY_TIMEOUT_S = 30.0
NUMBERS = "SELECT coalesce(max(rowid), 0) FROM shipments"
ROWS = "SELECT order_id, topic, kafka_partition, kafka_offset FROM shipments ORDER BY rowid"


class Rows:
    """Only looks; the table is made and filled by the sink."""

    def __init__(self, database: Path) -> None:
        self._database = database

    @property
    def count(self) -> int:
        # Rows are never deleted, so the last number is their count, and is found without counting.
        with suppress(sqlite3.OperationalError), closing(self._connect()) as connection:  # there is no table yet
            return int(connection.execute(NUMBERS).fetchone()[0])
        return 0

    def show_to(self, audit: Audit) -> None:
        """Every row, in the order in which they were written."""
        with closing(self._connect()) as connection:
            for order_id, topic, partition, offset in connection.execute(ROWS):
                audit.observe(TopicPartition(topic, partition), offset, parse_id(order_id.encode()))

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
