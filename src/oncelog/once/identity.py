"""By which id a message is known: its place in the log, or an id of its own that survives being sent twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from oncelog.once.database import Database, Transaction
from oncelog.once.errors import BadIdentity
from oncelog.once.hand import Unreadable
from oncelog.once.outcome import Outcome
from oncelog.once.strategy import Record

SOURCES = "sources"
MAX_ID_LENGTH = 1_000

MessageId = int | str
Key = tuple[int, MessageId]
"""The number of its source, and the id in there."""
IdOf = Callable[[Any], object]


def header_id(name: str) -> IdOf:
    """The id is what the record's header `name` says."""

    def id_of(record: Record) -> object:
        for header, value in record.headers or ():
            if header == name:
                return value
        raise BadIdentity(f"{place(record)} has no header {name!r} that would tell its id")

    return id_of


def place(record: Record) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def readable(record: Record) -> Record:
    """Of what cannot be deserialized only its place is known: an id or a version made of that would be the same for
    all such records, and the second would count as done."""
    if isinstance(record, Unreadable):
        raise BadIdentity(f"{place(record)} cannot be read, so nothing but its place tells which record it is")
    return record


def as_id(found: object, record: Record) -> str:
    """An id as the database keeps it. Two ids are the same only if they are the same text."""
    if isinstance(found, bytes | bytearray | memoryview):
        try:
            found = bytes(found).decode()
        except UnicodeDecodeError:
            raise BadIdentity(f"the id of {place(record)} is not text: make it one, such as its .hex()") from None
    if isinstance(found, int | UUID) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not found or "\0" in found or len(found) > MAX_ID_LENGTH:
        raise BadIdentity(
            f"{found!r:.80} of {place(record)} is not an id: give text of 1 to {MAX_ID_LENGTH} characters"
        )
    return found


class Identities:
    """Keys of records. A source is what ids are unique in: a scope for ids of your own, else one partition of it.

    Sources have short numbers in the database, so that a row per message stays small.
    """

    def __init__(self, database: Database, scope: str, id_of: IdOf | None = None) -> None:
        self._database = database
        self._scope = scope
        self._id_of = id_of
        self._as_text = database.dialect.ids_are_text
        self._numbers: dict[object, int] = {}
        table = database.tables.name(SOURCES)
        self._insert = f"INSERT INTO {table} (name) VALUES (:name) ON CONFLICT DO NOTHING"
        self._select = f"SELECT number FROM {table} WHERE name = :name"

    def learn(self, records: Iterable[Record]) -> None:
        """Numbers for new sources, in a transaction of their own: a number must not vanish with a failed effect."""
        if self._id_of is not None:
            if not self._numbers:
                self._numbers[self._scope] = self.number(f"id:{self._scope}")
            return
        for partition in {(record.topic, record.partition) for record in records}:
            if partition not in self._numbers:
                self._numbers[partition] = self.number(f"position:{self._scope}/{partition[0]}/{partition[1]}")

    def number(self, name: str) -> int:
        with self._database.transaction() as transaction:
            found = transaction.run(self._select, {"name": name})
            if not found:
                transaction.run(self._insert, {"name": name})
                found = transaction.run(self._select, {"name": name})
        return int(found[0][0])

    def keys(self, records: Sequence[Record]) -> list[Key]:
        numbers = self._numbers
        if self._id_of is not None:
            number = numbers[self._scope]
            return [(number, as_id(self._id_of(readable(record)), record)) for record in records]
        if self._as_text:
            return [(numbers[record.topic, record.partition], str(record.offset)) for record in records]
        return [(numbers[record.topic, record.partition], record.offset) for record in records]


def by_source(keys: Iterable[Key]) -> list[tuple[int, list[MessageId]]]:
    """The distinct ids of each source. Always in the same order, so that two workers seldom deadlock."""
    found: dict[int, set[MessageId]] = {}
    for source, message_id in keys:
        ids = found.get(source)
        if ids is None:
            ids = found[source] = set()
        ids.add(message_id)
    return [(source, sorted(ids)) for source, ids in sorted(found.items())]


def run_for_each_source(
    transaction: Transaction, statement: str, keys: Iterable[Key], **values: Any
) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows that a statement over `:source` and `:rows` returns, each with its source."""
    return [
        (source, row)
        for source, ids in by_source(keys)
        for row in transaction.run(statement, {"source": source, "rows": json.dumps(ids), **values})
    ]


def first_of_each(keys: Sequence[Key], fresh: set[Key]) -> list[Outcome]:
    """The first record of each fresh key is done, every other one is a repetition. Empties `fresh`."""
    outcomes = []
    for key in keys:
        if key in fresh:
            fresh.remove(key)
            outcomes.append(Outcome.DONE)
        else:
            outcomes.append(Outcome.REPEATED)
    return outcomes
