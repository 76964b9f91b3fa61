"""A flush as a value, and the book of what still needs one.

The log makes the request, anyone runs it (in a thread: syncing waits for the disk), the log is told the outcome.
Running touches no state of the log, so the log may grow meanwhile; what it adds stays in the book for the next request.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.errors import KafkaStorageError
from oncelog.log.segment import Segment
from oncelog.log.storage import File, Storage


class Unsynced:
    """What may be lost with the power, beside the bytes above the recovery point: indexes of segments sealed since the
    last flush (and that a torn tail was cut off before), and names changed in directories. Each change is an item of
    its own, so that a flush settles exactly what had happened when it was asked for."""

    __slots__ = ("_changes", "_items")

    def __init__(self) -> None:
        self._changes = 0
        self._items: set[tuple[int, Segment | str]] = set()

    def sealed(self, segment: Segment) -> None:
        self._add(segment)

    def renamed_in(self, directory: str) -> None:
        self._add(directory)

    def _add(self, item: Segment | str) -> None:
        self._changes += 1
        self._items.add((self._changes, item))

    def items(self) -> frozenset[tuple[int, Segment | str]]:
        return frozenset(self._items)

    def settle(self, items: frozenset[tuple[int, Segment | str]]) -> None:
        self._items -= items


@dataclass(frozen=True, slots=True)
class FlushRequest:
    storage: Storage
    offset: int  # everything below is durable afterwards
    files: tuple[File, ...]
    directories: tuple[str, ...]
    settles: frozenset[tuple[int, Segment | str]]  # of the book

    def run(self) -> None:
        """Sync, or raise KafkaStorageError. A failed sync must not be tried again: the kernel may have dropped the
        pages and would report success. Tell the log with `flush_failed` instead."""
        try:
            for file in self.files:
                file.sync()
            for directory in self.directories:
                self.storage.sync_directory(directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot sync to the disk: {error}") from error
