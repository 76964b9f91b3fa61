"""The far end of an audit: rows in SQLite that records became, each saying which record it comes from.

`book` is an effect as people write them, a function of (connection, record). SQLite lets one transaction write at a
time, so the rows' numbers are in the order in which they were booked, whoever booked them.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from oncelog.audit.account import Audit
from oncelog.audit.ids import RecordId, id_of_record, parse_id
from oncelog.sqlite_file import connect
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.records.kernel import ConsumerRecord

BUSY_TIMEOUT_S = 30.0
CREATE = (
    "CREATE TABLE IF NOT EXISTS bookings (number INTEGER PRIMARY KEY AUTOINCREMENT, order_id TEXT, "
    "topic TEXT NOT NULL, kafka_partition INTEGER NOT NULL, kafka_offset INTEGER NOT NULL)"
)
INSERT = "INSERT INTO bookings (order_id, topic, kafka_partition, kafka_offset) VALUES (?, ?, ?, ?)"
SELECT = "SELECT order_id, topic, kafka_partition, kafka_offset FROM bookings ORDER BY number"


def book(connection: Any, record: ConsumerRecord) -> None:
    """One row for one record, in the transaction of whoever calls."""
    found = id_of_record(record.value, record.headers)
    order_id = None if found is None else str(found)
    connection.execute(INSERT, (order_id, record.topic, record.partition, record.offset))


class Bookings:
    """A file of booked rows. Several processes may book into it; each has its own `Bookings`."""

    def __init__(self, path: str) -> None:
        self.connection = connect(path, timeout_s=BUSY_TIMEOUT_S, factory=sqlite3.Connection)
        self.connection.execute(CREATE)

    @property
    def row_count(self) -> int:
        # Rows are never deleted, so the last number is their count, and is found without counting.
        return int(self.connection.execute("SELECT coalesce(max(number), 0) FROM bookings").fetchone()[0])

    @property
    def order_count(self) -> int:
        """Different orders among the rows; reads them all."""
        return int(self.connection.execute("SELECT count(DISTINCT order_id) FROM bookings").fetchone()[0])

    def book_all(self, records: list[ConsumerRecord]) -> None:
        """All of them, in one transaction: what a careful person writes who has no other guarantee in mind."""
        self.connection.execute("BEGIN IMMEDIATE")
        with self.connection:
            for record in records:
                book(self.connection, record)

    def show_to(self, audit: Audit) -> None:
        """Let the audit see every row, in the order in which they were booked."""
        for order_id, topic, partition, offset in self.connection.execute(SELECT):
            audit.observe(TopicPartition(topic, partition), offset, _parsed(order_id))

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Bookings:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _parsed(order_id: str | None) -> RecordId | None:
    return None if order_id is None else parse_id(order_id.encode())
