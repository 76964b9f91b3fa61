"""What ought to be in a partition's folder: oncelog's own file beside Kafka's, which makes damage at rest noticeable.

Owns the format of `oncelog-manifest` and when two of its claims contradict the disk. A missing segment, a shortened
file, a lost transaction index or a snapshot of another time look like nothing at all to whoever only lists the folder:
only what was noted before tells. Kafka and older versions of oncelog ignore the file, and a
manifest from before they ran here is not believed.

It is replaced whenever the list of segments or the log's start changes, and at a clean close, and synced with the next
flush. The order makes a crash harmless: a file is created before the manifest names it, and taken out of the manifest
before it is removed. So what the manifest names is there. Sizes are promises only below `flushed_below`: what was never
synced, a power loss may take.

That order is one of calls: it holds for the death of this process, after which the next one sees all of them. After a
loss of power it holds as far as the file system keeps the order of changes to names in a directory, as those with a
journal do (ext4, XFS). Without that, a manifest may name a segment whose name was lost: such a log is not served until
someone looks at it. A manifest that the power tore fails its checksum, counts as none, and is written anew: until then
damage to that partition is noticed only as far as Kafka's own files tell.

    oncelog-manifest 1 9ae0daaf     version, CRC32C of all that follows
    partition orders 3              whose log this is; not in a manifest of an earlier version
    topic 0f3c...                   the topic's id, 32 hex digits; `-` if unknown
    foreign-epoch 0                 last epoch before this of an older oncelog or of Apache Kafka, in the metadata
    log-start 17
    flushed-below 250               was on the disk
    end 312                         of the log at a clean close; -1 while it is open
    snapshot 3735928559             CRC32C of the producers' snapshot at `end`; -1 if unknown
    epoch 0 0                       leader epoch, start offset; one line each
    segment 0 1000 2 77 88 4 5 1700000000000    one line each, the last one grows; -1 is unknown
                                    base offset, bytes, entries and CRC32C of .txnindex, CRC32C of .snapshot,
                                    entries of .index and .timeindex, newest timestamp
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.log.checkpoints import MAX_OFFSET
from oncelog.log.leader_epochs import EpochEntry, LeaderEpochCache, cut_end, cut_start
from oncelog.log.segment import Segment
from oncelog.log.snapshot_files import UNKNOWN_CRC, SnapshotFiles
from oncelog.log.storage import Storage, begin_file, replace_file
from oncelog.log.transaction_index import Checksum
from oncelog.named_tuple import NamedTuple
from oncelog.printable import excerpt
from oncelog.records.kernel import crc32c
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

FILE_NAME: Final = "oncelog-manifest"
VERSION: Final = 1
UNKNOWN: Final = -1
NOT_CLOSED: Final = -1

NO_FOREIGN_EPOCH: Final = 0
"""Nobody but an oncelog that keeps manifests has ever led this data folder, as far as is known."""


class CorruptManifest(OncelogError):
    """The file is not a whole manifest. Nothing of it is believed."""


class IndexCounts(NamedTuple):
    index_entries: int
    time_index_entries: int
    newest_timestamp: int

    @classmethod
    def of(cls, segment: Segment) -> IndexCounts:
        """Of a segment whose indexes are complete."""
        last = segment.time_index.last_entry()
        return cls(segment.offset_index.count, segment.time_index.count, last.timestamp)


class SegmentEntry(NamedTuple):
    """One segment as it was left; UNKNOWN where that is not known, as of one that grows."""

    base_offset: int
    size_bytes: int = UNKNOWN
    aborted_count: int = UNKNOWN
    aborted_crc: int = UNKNOWN
    snapshot_crc: int = UNKNOWN_CRC
    index_entries: int = UNKNOWN
    time_index_entries: int = UNKNOWN
    newest_timestamp: int = UNKNOWN

    @property
    def indexes(self) -> IndexCounts:
        return IndexCounts(self.index_entries, self.time_index_entries, self.newest_timestamp)

    @property
    def aborted(self) -> Checksum | None:
        return None if self.aborted_count == UNKNOWN else Checksum(self.aborted_count, self.aborted_crc)


class Manifest(NamedTuple):
    segments: tuple[SegmentEntry, ...]
    log_start_offset: int
    flushed_below: int
    epochs: tuple[EpochEntry, ...] = ()
    end_offset: int = NOT_CLOSED
    snapshot_crc: int = UNKNOWN_CRC
    topic_id: UUID | None = None
    foreign_epoch: int = NO_FOREIGN_EPOCH
    partition: TopicPartition | None = None

    @property
    def is_closed(self) -> bool:
        return self.end_offset != NOT_CLOSED

    @property
    def knows_epochs_below(self) -> int:
        """The leader epochs of all offsets below are noted: they were when the last segment began, or the log was
        closed."""
        if not self.epochs or not self.segments:
            return 0
        return self.end_offset if self.is_closed else self.segments[-1].base_offset

    @property
    def snapshot_crcs(self) -> dict[int, int]:
        """By the offset of the snapshot, where known."""
        crcs = {entry.base_offset: entry.snapshot_crc for entry in self.segments}
        if self.is_closed:
            crcs[self.end_offset] = self.snapshot_crc
        return {offset: crc for offset, crc in crcs.items() if crc != UNKNOWN_CRC}

    def entry(self, base_offset: int) -> SegmentEntry | None:
        return next((entry for entry in self.segments if entry.base_offset == base_offset), None)

    def is_stale(self, foreign_epoch: int) -> bool:
        """Whether somebody else has led this folder since: what was done there is not in this manifest."""
        return foreign_epoch > self.foreign_epoch

    def fits(self, epochs: Sequence[EpochEntry]) -> bool:
        """Whether these may be the leader epochs of the log: those noted here, and perhaps later ones. Their file is
        cut after the manifest tells of a new start, and where a log is empty it is cut at its end too."""
        known = cut_start(self.epochs, self.log_start_offset)
        found = cut_start(epochs, self.log_start_offset)
        if self.is_closed:
            known, found = cut_end(known, self.end_offset), cut_end(found, self.end_offset)
        return found[: len(known)] == known

    def swapped(self, starts: Iterable[int], first: int, end: int) -> Manifest:
        """As a compaction left it that put segments at `starts` in the place of all in [first, end)."""
        kept = [entry for entry in self.segments if not first <= entry.base_offset < end]
        new = [SegmentEntry(start) for start in starts]
        return self._replace(segments=tuple(sorted([*kept, *new])))

    def cut(self, base_offsets: Iterable[int], end_offset: int) -> Manifest:
        """With only these segments, of which the last one grows on from `end_offset`."""
        kept = set(base_offsets)
        entries = [entry for entry in self.segments if entry.base_offset in kept]
        if entries:
            entries[-1] = SegmentEntry(entries[-1].base_offset, snapshot_crc=entries[-1].snapshot_crc)
        return self._replace(
            segments=tuple(entries),
            flushed_below=min(self.flushed_below, end_offset),
            epochs=tuple(cut_end(self.epochs, end_offset)),
            end_offset=NOT_CLOSED,
        )

    # --- against the disk ---

    def contradiction(self, base_offsets: Iterable[int]) -> str | None:
        """What is wrong with a folder that holds these segments. Older ones than the first named wait to be removed,
        newer ones than the last were begun after this was written."""
        found = set(base_offsets)
        named = {entry.base_offset for entry in self.segments}
        missing = sorted(named - found)
        if missing:
            gone = ", ".join(f"{offset:020d}.log" for offset in missing[:MAX_NAMED])
            return f"{len(missing)} of the {len(named)} segments that {FILE_NAME} names are missing: {gone}"
        odd = sorted(offset for offset in found - named if named and min(named) < offset < max(named))
        if odd:
            return f"segment {odd[0]:020d}.log does not belong here: {FILE_NAME} does not name it"
        return None


MAX_NAMED: Final = 5
"""Missing segments that an error names: the first ones tell which part is gone."""


def encode(manifest: Manifest) -> bytes:
    topic_id = manifest.topic_id.hex if manifest.topic_id is not None else "-"
    lines = [
        *([f"partition {manifest.partition.topic} {manifest.partition.partition}"] if manifest.partition else []),
        f"topic {topic_id}",
        f"foreign-epoch {manifest.foreign_epoch}",
        f"log-start {manifest.log_start_offset}",
        f"flushed-below {manifest.flushed_below}",
        f"end {manifest.end_offset}",
        f"snapshot {manifest.snapshot_crc}",
        *(f"epoch {epoch} {start}" for epoch, start in manifest.epochs),
        *("segment " + " ".join(map(str, entry)) for entry in manifest.segments),
    ]
    body = "".join(f"{line}\n" for line in lines).encode()
    return f"{FILE_NAME} {VERSION} {crc32c(body):08x}\n".encode() + body


def decode(data: bytes) -> Manifest:
    """Raises CorruptManifest."""
    first, _, body = data.partition(b"\n")
    name, _, crc = first.decode(errors="backslashreplace").rpartition(" ")
    if name != f"{FILE_NAME} {VERSION}":
        raise CorruptManifest(f"it begins with {excerpt(first)}, not as a manifest of version {VERSION}")
    if crc != f"{crc32c(body):08x}":
        raise CorruptManifest(f"its checksum is {excerpt(crc)}, and its content gives {crc32c(body):08x}")
    try:
        manifest = _parse(body.decode())
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptManifest("its checksum is right, and its lines are not those of a manifest") from error
    if (nonsense := _nonsense(manifest)) is not None:
        raise CorruptManifest(f"its checksum is right, and {nonsense}")
    return manifest


def _nonsense(manifest: Manifest) -> str | None:
    """What cannot be true of any log."""
    bases = [entry.base_offset for entry in manifest.segments]
    offsets = [manifest.log_start_offset, manifest.flushed_below, *bases]
    if not all(0 <= offset <= MAX_OFFSET for offset in offsets) or not NOT_CLOSED <= manifest.end_offset <= MAX_OFFSET:
        return "an offset is out of bounds"
    if any(later <= earlier for earlier, later in pairwise(bases)):
        return "its segments are not in order"
    if any(later <= earlier for earlier, later in pairwise(epoch.epoch for epoch in manifest.epochs)):
        return "its leader epochs are not in order"
    return "it was closed, and has no segment" if manifest.is_closed and not bases else None


def _parse(body: str) -> Manifest:
    single: dict[str, str] = {}
    epochs, segments = [], []
    for line in body.splitlines():
        key, _, value = line.partition(" ")
        if key == "segment":
            segments.append(SegmentEntry(*map(int, value.split(" "))))
        elif key == "epoch":
            epochs.append(EpochEntry(*map(int, value.split(" "))))
        else:
            single[key] = value
    return Manifest(
        tuple(segments),
        int(single["log-start"]),
        int(single["flushed-below"]),
        tuple(epochs),
        int(single["end"]),
        int(single["snapshot"]),
        None if single["topic"] == "-" else UUID(hex=single["topic"]),
        int(single["foreign-epoch"]),
        _partition(single["partition"]) if "partition" in single else None,
    )


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition(" ")
    return TopicPartition(topic, int(index))


def read_manifest(storage: Storage, directory: str) -> Manifest | None:
    """None if there is none, as in a folder that Kafka or an older oncelog left. Raises CorruptManifest."""
    try:
        return decode(storage.read_all(f"{directory}/{FILE_NAME}"))
    except FileNotFoundError:
        return None


class ManifestFile:
    """The manifest of an open log. It notes what sealed segments are once: they do not change any more."""

    __slots__ = ("_entries", "_foreign_epoch", "_is_new", "_partition", "_storage", "_topic_id", "_written", "path")

    def __init__(
        self,
        storage: Storage,
        directory: str,
        partition: TopicPartition,
        topic_id: UUID | None,
        foreign_epoch: int,
        *,
        is_new: bool = False,
    ) -> None:
        self._storage = storage
        self._is_new = is_new
        self._partition = partition
        self._topic_id = topic_id
        self._foreign_epoch = foreign_epoch
        self._entries: dict[Segment, SegmentEntry] = {}
        self._written: Manifest | None = None
        self.path = f"{directory}/{FILE_NAME}"

    @property
    def written(self) -> Manifest | None:
        """What the file says, as far as it is believed."""
        return self._written

    @property
    def is_closed(self) -> bool:
        return self._written is not None and self._written.is_closed

    def load(self) -> None:
        """Read what the last run left. One that cannot be believed counts as none."""
        directory = self.path.rpartition("/")[0]
        try:
            found = read_manifest(self._storage, directory)
        except CorruptManifest as error:
            logger.warning("%s: writing it anew from what is there: %s", self.path, error)
            return
        if found is not None and found.is_stale(self._foreign_epoch):
            logger.debug(
                "%s: another version of oncelog, or Apache Kafka, has run here since; writing it anew", self.path
            )
        elif found is not None:
            self._written = found._replace(topic_id=found.topic_id or self._topic_id)

    def replace(self, manifest: Manifest) -> bool:
        """Write it, without waiting for the disk, unless it stands there already; whether it was written."""
        manifest = self._own(manifest)
        if manifest == self._written:
            return False
        if self._is_new:  # the log holds nothing: should a kill tear its first manifest, it is written anew
            begin_file(self._storage, self.path, encode(manifest))
        else:
            replace_file(self._storage, self.path, encode(manifest), durable=False)
        self._written = manifest
        self._is_new = False
        return True

    def _own(self, manifest: Manifest) -> Manifest:
        return manifest._replace(partition=self._partition, topic_id=self._topic_id, foreign_epoch=self._foreign_epoch)

    def holds(self, manifest: Manifest) -> bool:
        """Whether the file says all of this, but for what is on the disk elsewhere: later leader epochs, which batches
        tell, and how far the log was flushed, which the checkpoint of recovery points tells."""
        written = self._written
        return (
            written is not None
            and written.flushed_below <= manifest.flushed_below
            and written.epochs == manifest.epochs[: len(written.epochs)]
            and written == self._own(manifest)._replace(flushed_below=written.flushed_below, epochs=written.epochs)
        )

    def describe(
        self,
        sealed: Iterable[Segment],
        active: Segment,
        snapshots: SnapshotFiles,
        epochs: LeaderEpochCache,
        *,
        log_start_offset: int,
        flushed_below: int,
        end_offset: int | None = None,
    ) -> Manifest:
        """The manifest of a log as it is; with `end_offset`, as a clean close leaves it."""
        entries = {segment: self._entries.get(segment) or _entry_of(segment, snapshots) for segment in sealed}
        self._entries = entries
        if end_offset is None:
            last = SegmentEntry(active.base_offset, snapshot_crc=snapshots.crc(active.base_offset))
        else:
            last = _entry_of(active, snapshots)
        return Manifest(
            (*entries.values(), last),
            log_start_offset,
            flushed_below,
            tuple(cut_start(epochs.entries, log_start_offset)),
            NOT_CLOSED if end_offset is None else end_offset,
            UNKNOWN_CRC if end_offset is None else snapshots.crc(end_offset),
        )


def _entry_of(segment: Segment, snapshots: SnapshotFiles) -> SegmentEntry:
    aborted = segment.transaction_index.checksum()
    return SegmentEntry(
        segment.base_offset,
        segment.size_bytes,
        aborted.entries,
        aborted.crc,
        snapshots.crc(segment.base_offset),
        *IndexCounts.of(segment),
    )
