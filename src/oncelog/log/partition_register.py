"""Which partitions have a folder in a data directory: oncelog's own file, so that a lost folder is told from a new one.

Owns the format of `oncelog-partitions`. A partition whose topic exists but whose folder does not was either never
written to, or its folder is lost with all its records: only a note from after the folder's making tells which. A line
is added for each folder, after it was made, and never taken back: the topic's id in it tells a topic from one that had
its name before. The file is written anew at a start if it says too much.

    orders 0 0f3c9a... 9ae0daaf     topic, partition, topic id, CRC32C of the line so far
    orders -1 0f3c9a... 1d5ab26c    the topic was deleted: what is left of its folders may go

The second kind is written once for a topic that has folders, before they are renamed. The metadata says as much, but
only until its next snapshot, before which these lines are synced.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Collection
from typing import Final
from uuid import UUID

from oncelog.log.storage import File, Storage, replace_file
from oncelog.named_tuple import NamedTuple
from oncelog.records.kernel import crc32c
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

FILE_NAME: Final = "oncelog-partitions"
LINE_END: Final = b"\n"
ALL_PARTITIONS: Final = -1
"""In a line that tells of a topic's deletion."""

MAX_MISSED: Final = 1_000
"""Deletions that wait to be written down while the disk is full; of more, the metadata alone tells for a while."""


class Registered(NamedTuple):
    topic_partition: TopicPartition
    topic_id: UUID


class PartitionRegister:
    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._path = f"{directory}/{FILE_NAME}"
        self._file: File | None = None  # kept open: a line for each of thousands of partitions must not cost an opening
        self._is_torn = False  # whether the file ends within a line
        self._is_whole = True
        self.deleted_topics: dict[UUID, str] = {}
        """Those that `load` found, with their names, until `replace`. What is deleted later is in the file alone."""
        self._last_deleted: UUID | None = None
        self._missed: dict[UUID, str] = {}  # topics whose deletion could not be written down
        self._has_unsynced = False  # deletions

    def load(self) -> set[Registered] | None:
        """Every partition that had a folder; None if there is no such file. Damaged lines are left out, with a
        warning: of those partitions, a lost folder may go unnoticed until the next `replace`."""
        if not self._storage.exists(self._path):
            self._is_whole = False
            return None
        lines = self._storage.read_all(self._path).decode(errors="replace").splitlines()
        found = [registered for line in lines if (registered := _decode(line)) is not None]
        self._is_whole = len(found) == len(lines)
        if not self._is_whole:
            logger.warning("%s: %d of %d lines cannot be believed", self._path, len(lines) - len(found), len(lines))
        deleted = [each for each in found if each.topic_partition.partition == ALL_PARTITIONS]
        self.deleted_topics = {each.topic_id: each.topic_partition.topic for each in deleted}
        return {each for each in found if each.topic_partition.partition != ALL_PARTITIONS}

    def doubt_deletion(self, topic_id: UUID) -> None:
        """The topic was not deleted: the line goes with the next `replace`."""
        del self.deleted_topics[topic_id]
        self._is_whole = False

    def note_deleted(self, topic: str, topic_id: UUID) -> None:
        """Note that the topic was deleted, once for all of its partitions, which are deleted one after the other. If
        that fails, the metadata still tells for a while; `note_missed` tries again."""
        if topic_id == self._last_deleted:
            return
        self._last_deleted = topic_id
        if len(self._missed) >= MAX_MISSED:
            del self._missed[next(iter(self._missed))]
        self._missed[topic_id] = topic
        self.note_missed()

    def note_missed(self) -> None:
        """Write down the deletions that could not be before, as far as that is possible now."""
        while self._missed:
            topic_id, topic = next(iter(self._missed.items()))
            try:
                self.add(Registered(TopicPartition(topic, ALL_PARTITIONS), topic_id))
            except OSError as error:
                logger.warning("%s cannot be told yet that %s was deleted: %s", self._path, topic, error)
                return
            self._has_unsynced = True
            del self._missed[topic_id]

    def sync_deletions(self) -> None:
        """Make durable what was noted of deletions, before whoever else knows of them forgets. May be called in another
        thread. Raises OSError if some could not even be written down so far."""
        if self._missed:
            raise OSError(errno.EAGAIN, "deletions of topics are still to be written down", self._path)
        if self._has_unsynced:
            self._has_unsynced = False
            file = self._file
            try:
                (file if file is not None else self._storage.open(self._path)).sync()
            except OSError:
                self._has_unsynced = True
                raise

    def add(self, registered: Registered) -> None:
        """Note that the partition has a folder. A line that could not be written whole is no part of the next."""
        file = self._file if self._file is not None else self._open()
        try:
            file.append((LINE_END if self._is_torn else b"") + _encode(registered))
        except OSError:
            self._file = None  # the next one looks at how it ends
            with contextlib.suppress(OSError):
                file.truncate(file.size)
            raise
        self._is_torn = False

    def _open(self) -> File:
        file = self._storage.open(self._path, create=True)
        self._is_torn = file.size > 0 and file.read(file.size - 1, 1) != LINE_END
        self._file = file
        return file

    def replace(self, found: Collection[Registered] | None, known: Collection[Registered]) -> None:
        """Make `known` all that the file says, unless that is what was `found` in it."""
        if not self._is_whole or self.deleted_topics or found != known:
            self._file = None
            replace_file(self._storage, self._path, b"".join(map(_encode, sorted(known))), durable=True)
            self._is_whole = True
            self.deleted_topics.clear()


def _encode(registered: Registered) -> bytes:
    topic_partition, topic_id = registered
    text = f"{topic_partition.topic} {topic_partition.partition} {topic_id.hex}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def _decode(line: str) -> Registered | None:
    text, _, crc = line.rpartition(" ")
    try:
        if int(crc, 16) != crc32c(text.encode()):
            return None
        topic, partition, topic_id = text.split(" ")
        return Registered(TopicPartition(topic, int(partition)), UUID(hex=topic_id))
    except ValueError:
        return None
