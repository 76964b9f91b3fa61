"""A flush as a value, and the book of what still needs one.

The log makes the request, anyone runs it (in a thread: syncing waits for the disk), the log is told the outcome.
Running touches no state of the log, so the log may grow meanwhile; what it adds stays in the book for the next request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.errors import KafkaStorageError
from oncelog.log.storage import File, Storage, directory_of
from oncelog.named_tuple import NamedTuple


class Change(NamedTuple):
    number: int
    path: str
    is_directory: bool


class Unsynced:
    """What may be lost with the power, beside the bytes above the recovery point: files written beside the log, and
    names changed in directories. Each change is noted by itself, so that a flush settles exactly what had happened when
    it was asked for."""

    __slots__ = ("_changes", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._changes: set[Change] = set()

    def written(self, *paths: str) -> None:
        """Files were written, and perhaps got their names."""
        for path in paths:
            self._add(path, is_directory=False)
            self.renamed_in(directory_of(path))

    def renamed_in(self, directory: str) -> None:
        self._add(directory, is_directory=True)

    def _add(self, path: str, *, is_directory: bool) -> None:
        self._count += 1
        self._changes.add(Change(self._count, path, is_directory))

    def changes(self) -> frozenset[Change]:
        return frozenset(self._changes)

    def settle(self, changes: frozenset[Change]) -> None:
        self._changes -= changes


@dataclass(frozen=True, slots=True)
class FlushRequest:
    storage: Storage
    offset: int  # everything below is durable afterwards
    files: tuple[File, ...]
    directories: tuple[str, ...]
    settles: frozenset[Change]
    truncations: int  # of the log before it was asked for: `offset` means another place after the next one
    log_start_offset: int = 0  # as the manifest among the files says it

    @classmethod
    def make(
        cls,
        storage: Storage,
        offset: int,
        logs: Iterable[File],
        changes: frozenset[Change],
        *,
        truncations: int,
        log_start_offset: int = 0,
    ) -> FlushRequest:
        """Opens everything that will be synced: names may change before it runs."""
        files = list(logs)
        for path in sorted({change.path for change in changes if not change.is_directory}):
            with contextlib.suppress(FileNotFoundError):  # retention was faster
                files.append(storage.open(path))
        directories = sorted({change.path for change in changes if change.is_directory})
        return cls(storage, offset, tuple(files), tuple(directories), changes, truncations, log_start_offset)

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
