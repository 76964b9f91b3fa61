"""A flush as a value: which files to sync, and the offset that is durable once they are.

The log makes the request, anyone runs it (in a thread: syncing waits for the disk), the log is told the outcome. It
touches no state of the log, so the log may grow meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.errors import KafkaStorageError
from oncelog.log.storage import File, Storage


@dataclass(frozen=True, slots=True)
class FlushRequest:
    storage: Storage
    directory: str
    files: tuple[File, ...]
    sync_names: bool  # whether files were created or renamed since the last flush
    offset: int  # everything below is durable afterwards

    def run(self) -> None:
        """Sync, or raise KafkaStorageError. A failed sync must not be tried again: the kernel may have dropped the
        pages and would report success. Tell the log with `flush_failed` instead."""
        try:
            for file in self.files:
                file.sync()
            if self.sync_names:
                self.storage.sync_directory(self.directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot sync {self.directory}: {error}") from error
