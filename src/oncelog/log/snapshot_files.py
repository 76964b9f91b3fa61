"""The `.snapshot` files of one partition: which there are, writing one, and the newest that can be believed.

Owns the files; their content is `producer_snapshot`'s. A snapshot named N holds the producers as they were before
offset N was written. A file that fails its checks is removed with a warning and never believed in part.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Collection, Iterable
from typing import NamedTuple

from oncelog.log import producer_snapshot
from oncelog.log.producer_snapshot import CorruptSnapshot
from oncelog.log.producer_state import ProducerEntry
from oncelog.log.segment_files import SNAPSHOT_SUFFIX, file_path, offset_of
from oncelog.log.storage import Storage, replace_file

logger = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    offset: int
    entries: list[ProducerEntry]


class SnapshotFiles:
    __slots__ = ("_directory", "_offsets", "_storage", "broken")

    def __init__(self, storage: Storage, directory: str, names: Iterable[str]) -> None:
        self._storage = storage
        self._directory = directory
        found = (offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self._offsets = sorted(offset for offset in found if offset is not None)
        self.broken: list[int] = []
        """Snapshots that failed their checks since the log was opened."""

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def write(self, offset: int, entries: Collection[ProducerEntry], mono_ms: int) -> None:
        """Write the snapshot at `offset`, without waiting for the disk: if the power takes it, its CRC will tell."""
        replace_file(self._storage, self.path(offset), producer_snapshot.encode(entries, mono_ms), durable=False)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def newest(self, at_most: int, mono_ms: int) -> Snapshot | None:
        """The newest good snapshot at or below an offset."""
        for offset in reversed([offset for offset in self._offsets if offset <= at_most]):
            try:
                entries = producer_snapshot.decode(self._storage.read_all(self.path(offset)), mono_ms)
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("rebuilding producers from the log: %s: %s", self.path(offset), error)
                self.broken.append(offset)
                self.remove([offset])
                continue
            return Snapshot(offset, list(entries))
        return None

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._storage.remove(self.path(offset))
            self._offsets.remove(offset)

    def remove_below(self, offset: int) -> None:
        """Forget those from which the log no longer leads on."""
        self.remove([each for each in self._offsets if each < offset])

    def remove_above(self, offset: int) -> None:
        self.remove([each for each in self._offsets if each > offset])

    def remove_stray(self, base_offsets: Collection[int]) -> None:
        """Keep those that a segment begins with, and the newest: nothing would ever look for the others."""
        self.remove([offset for offset in self._offsets[:-1] if offset not in base_offsets])

    def path(self, offset: int) -> str:
        return file_path(self._directory, offset, SNAPSHOT_SUFFIX)
