"""The `.snapshot` files of one partition: which there are, writing one, and the newest that can be believed.

Owns the files; their content is `producer_snapshot`'s. A snapshot named N holds the producers as they were before
offset N was written. A file that fails its checks is passed over with a warning and never believed in part; nor is one
that is whole, but not the one that the manifest knows: producers of another time would take a retry for something new.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog.log import producer_snapshot
from oncelog.log.producer_snapshot import CorruptSnapshot
from oncelog.log.producer_state import ProducerEntry
from oncelog.log.segment_files import SNAPSHOT_SUFFIX, file_path, offset_of
from oncelog.log.storage import Storage, replace_file
from oncelog.named_tuple import NamedTuple
from oncelog.records.kernel import crc32c

logger = logging.getLogger(__name__)

UNKNOWN_CRC: Final = -1
EMPTY_SNAPSHOT_CRC: Final = crc32c(producer_snapshot.encode((), 0))
"""Of the snapshot of a log that no producer wrote to with an id: nothing is lost with it."""


class Snapshot(NamedTuple):
    offset: int
    entries: list[ProducerEntry]


class SnapshotFiles:
    __slots__ = ("_crcs", "_directory", "_offsets", "_storage", "broken")

    def __init__(self, storage: Storage, directory: str, names: Iterable[str]) -> None:
        self._storage = storage
        self._directory = directory
        found = (offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self._offsets = sorted(offset for offset in found if offset is not None)
        self._crcs: dict[int, int] = {}
        self.broken: list[int] = []
        """Snapshots that failed their checks since the log was opened."""

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def expect(self, crcs: Mapping[int, int]) -> None:
        """Believe only these bytes (their CRC32C) of the snapshots at these offsets."""
        self._crcs.update(crcs)

    def crc(self, offset: int) -> int:
        """Of the snapshot at `offset`, if it was written or expected since the log was opened."""
        return self._crcs.get(offset, UNKNOWN_CRC) if offset in self._offsets else UNKNOWN_CRC

    def expect_another(self, offset: int) -> None:
        """The snapshot at `offset` is about to be replaced: from now on, any whole one there is believed."""
        self._crcs.pop(offset, None)

    def write(self, offset: int, entries: Collection[ProducerEntry], mono_ms: int, *, durable: bool = False) -> None:
        """Write the snapshot at `offset`. Unless it must be `durable` it does not wait for the disk: if the power takes
        it, its CRC will tell."""
        data = producer_snapshot.encode(entries, mono_ms)
        replace_file(self._storage, self.path(offset), data, durable=durable)
        self._crcs[offset] = crc32c(data)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def newest(self, at_most: int, mono_ms: int) -> Snapshot | None:
        """The newest good snapshot at or below an offset."""
        for offset in reversed([offset for offset in self._offsets if offset <= at_most]):
            try:
                data = self._storage.read_all(self.path(offset))
                crc = crc32c(data)
                if self._crcs.get(offset, crc) != crc:
                    raise CorruptSnapshot(f"its CRC is {crc}, not the {self._crcs[offset]} of the one written here")
                entries = producer_snapshot.decode(data, mono_ms)
                self._crcs[offset] = crc
            except (CorruptSnapshot, FileNotFoundError) as error:
                logger.warning("rebuilding producers from the log: %s: %s", self.path(offset), error)
                self.broken.append(offset)
                self._offsets.remove(offset)
                self._crcs.pop(offset, None)
                continue
            return Snapshot(offset, list(entries))
        return None

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._storage.remove(self.path(offset))
            self._offsets.remove(offset)
            self._crcs.pop(offset, None)

    def remove_broken(self) -> None:
        """Not before the log is known to do without them: else somebody may still put them right."""
        for offset in self.broken:
            if offset not in self._offsets:
                self._storage.remove(self.path(offset))

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
