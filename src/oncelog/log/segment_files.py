"""The names of a partition's files, and their removal in two steps.

Owns what Kafka calls a segment's files: the base offset in twenty digits, a suffix for each kind, and a second suffix
while a file waits to be removed (`.deleted`), is being written by the cleaner (`.cleaned`) or takes the place of others
(`.swap`). It opens and reads nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from oncelog.log.storage import Storage

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

_OFFSET_DIGITS = 20


def file_path(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset in the name of a segment's or snapshot's file; None for any other file."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and len(digits) == _OFFSET_DIGITS and digits.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Removal:
    """Files that are out of use and already renamed: removing them only gives the space back.

    `run` may take a while for large files and may be called in any thread. If it never runs, the next opening of the
    log removes them.
    """

    storage: Storage
    paths: tuple[str, ...]
    due_ms: int

    def run(self) -> None:
        for path in self.paths:
            try:
                self.storage.remove(path)
            except OSError as error:
                logger.warning("cannot remove %s, the next start will try again: %s", path, error)


def mark_deleted(storage: Storage, paths: list[str], due_ms: int) -> Removal:
    """Take files out of use by renaming them, the first one first: a segment without its `.log` is no segment."""
    for path in paths:
        storage.rename(path, path + DELETED_SUFFIX)
    return Removal(storage, tuple(path + DELETED_SUFFIX for path in paths), due_ms)
