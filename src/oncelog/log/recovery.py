"""Opens a log directory: what was there before, and, if it was not left cleanly, what of it can be believed.

Owns the way from files to segments, epochs and producers. Above the recovery point (what was known to be on the disk)
every batch is read and its checksum verified; the first bad one ends the log, and everything after it is removed. Below
it only headers are read, and only as far back as the newest good producer snapshot. It never looks at a clock, and
writes nothing that the log did not already say.

What the manifest, the recovery point or a clean stop promised must be there: a log that ends before that, or lacks a
segment, was damaged at rest. It is not opened (`DamagedLog`) and not cut, so that what is missing can be put back. What
lies above all promises may be cut: after a loss of power it is legitimately torn, and nothing on the disk knows better.

Kafka's names: LogLoader, ProducerStateManager.truncateAndReload, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from oncelog.errors import CorruptMessage, InvalidRecord, KafkaStorageError
from oncelog.log.batch_epochs import (
    BatchEpochs,
    EpochRun,
    contradiction,
    corrected,
    lacks_beginning,
    last_batch,
    read_epochs,
    with_later,
    witnesses,
)
from oncelog.log.batch_scan import ScannedBatches, scan_batches
from oncelog.log.checkpoints import LOG_START_OFFSET_FILE, MAX_OFFSET, RECOVERY_POINT_FILE, CorruptCheckpoint
from oncelog.log.config import LogConfig
from oncelog.log.folders import name_of, see_doctor
from oncelog.log.index import MAX_RELATIVE_OFFSET, CorruptIndex
from oncelog.log.interrupted import remove_orphans, settle_interrupted
from oncelog.log.leader_epochs import EpochEntry, LeaderEpochCache, cut_end, cut_start
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.manifest import UNKNOWN, IndexCounts, Manifest, ManifestFile
from oncelog.log.open_files import OpenFiles
from oncelog.log.producer_state import KEPT_BATCHES, CompletedTransaction, ProducerStateManager
from oncelog.log.segment import Segment
from oncelog.log.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, offset_of
from oncelog.log.segments import Segments
from oncelog.log.snapshot_files import EMPTY_SNAPSHOT_CRC, SnapshotFiles
from oncelog.log.storage import File, Storage, directory_of
from oncelog.log.transaction_index import AbortedTransaction, CorruptTransactionIndex
from oncelog.named_tuple import NamedTuple
from oncelog.printable import printable
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, BatchHeader, read_control_marker
from oncelog.records.model import CONTROL_MASK, TRANSACTIONAL_MASK
from oncelog.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)


class DamagedLog(KafkaStorageError):
    """Files of a log are not what they were promised to be. It is left as it is, and not served."""


def damaged(directory: str, what: str) -> DamagedLog:
    return DamagedLog(f"{directory} is damaged: {what}. {see_doctor(directory_of(directory))}")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a log found and mended."""

    clean: bool
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: tuple[int, ...] = ()
    rebuilt_indexes: tuple[int, ...] = ()
    snapshot_offset: int | None = None
    broken_snapshots: tuple[int, ...] = ()
    mended: tuple[tuple[str, str], ...] = ()
    """Files that were put right, and what was wrong with each."""


class LoadedLog(NamedTuple):
    segments: Segments
    leader_epochs: LeaderEpochCache
    producers: ProducerStateManager
    snapshots: SnapshotFiles
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    written: list[str]  # files that recovery wrote and nobody has synced
    report: RecoveryReport
    manifest: ManifestFile | None


_NOTHING_TO_RECOVER: Final = RecoveryReport(clean=True)


def nothing_loaded(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    manifest: ManifestFile,
    now_ms: int,
    open_files: OpenFiles | None = None,
) -> LoadedLog:
    """Of a partition that nobody has written to, which has no files."""
    segment = Segment(storage, directory, 0, config, now_ms=now_ms, open_files=open_files)
    segment.plan()
    return LoadedLog(
        Segments([segment]),
        LeaderEpochCache(storage, directory),
        ProducerStateManager(topic_partition, producer_id_expiration_ms=config.producer_id_expiration_ms),
        SnapshotFiles(storage, directory, []),
        0,
        0,
        0,
        [],
        _NOTHING_TO_RECOVER,
        manifest,
    )


class LogLoader:
    """One opening of one directory."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        manifest: ManifestFile | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._storage = storage
        self._open_files = open_files
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._now_ms = now_ms
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._report = RecoveryReport(clean)
        self._manifest = manifest
        self._must_reach = recovery_point
        self._promised_by = RECOVERY_POINT_FILE
        self._epochs = LeaderEpochCache(storage, directory)
        self._segments: list[Segment] = []
        self._snapshots: SnapshotFiles
        self._scanned: list[Segment] = []
        self._scanned_epoch = NO_LEADER_EPOCH
        self._noted_epochs: list[_NotedEpochs] = []
        self._scanned_epochs = BatchEpochs()
        self._last_epoch: tuple[EpochRun, ...] = ()  # that of the last batch, if that was found without a scan
        self._producers = ProducerStateManager(
            topic_partition, producer_id_expiration_ms=config.producer_id_expiration_ms
        )

    def load(self) -> LoadedLog:
        self.prepare()
        return self.finish()

    def prepare(self) -> None:
        """All that takes the same time for a log of any size. `scan_bytes` is known after it; `finish` must follow."""
        self._storage.make_directory(self._directory)
        if self._manifest is not None:
            self._manifest.load()
            self._check_owner()
        names = settle_interrupted(self._storage, self._directory, self._note_swap)
        found = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
        segments = [self._segment(offset) for offset in sorted(offset for offset in found if offset is not None)]
        self._check_promises(segments)
        snapshots = SnapshotFiles(self._storage, self._directory, remove_orphans(self._storage, self._directory, names))
        if self._claims is not None:
            snapshots.expect(self._claims.snapshot_crcs)
        if segments:
            snapshots.remove_below(segments[0].base_offset)
        self._segments, self._snapshots = segments, snapshots

    @property
    def scan_bytes(self) -> int:
        """The size of the segments that `finish` will read to the end."""
        untrusted = self._segments[self._trusted_count(self._segments) :]
        return sum(self._storage.status(segment.path).size_bytes for segment in untrusted)

    def finish(self) -> LoadedLog:
        segments, snapshots = self._segments, self._snapshots
        self._load_epochs()
        end_offset = self._open_segments(segments, snapshots) if segments else self._log_start_offset
        if end_offset < self._must_reach:
            raise self._ends_early(end_offset)
        if end_offset < self._log_start_offset:
            self._start_over(segments, snapshots, end_offset)
            segments, end_offset = [], self._log_start_offset
        if not segments:
            segments = [self._begin_segment()]
        ordered = Segments(segments)
        self._settle_epochs(list(ordered), end_offset)
        return self._loaded(ordered, snapshots, end_offset)

    def _begin_segment(self) -> Segment:
        """Logs are loaded in threads: what they open is none of `OpenFiles`, and closed in the end."""
        segment = self._segment(self._log_start_offset)
        self._storage.open(segment.path, create=True).truncate(0)
        segment.plan()
        return segment

    # --- what was promised ---

    @property
    def _claims(self) -> Manifest | None:
        return self._manifest.written if self._manifest is not None else None

    def _check_owner(self) -> None:
        """The folders of two partitions of one topic have the same topic id: only the manifest tells them apart."""
        owner = self._claims.partition if self._claims is not None else None
        if owner is not None and owner != self._topic_partition:
            raise damaged(
                self._directory,
                f"{MANIFEST_FILE} says that this is the log of partition {printable(owner)}: folders were renamed or "
                f"swapped, and this one should be called {printable(name_of(owner))} again",
            )

    def _note_swap(self, starts: list[int], first: int, end: int) -> None:
        if self._manifest is not None and self._claims is not None:
            self._manifest.replace(self._claims.swapped(starts, first, end))

    def _check_promises(self, segments: list[Segment]) -> None:
        """Compare with the manifest what can be compared without reading a segment."""
        claims = self._claims
        if claims is None:
            return
        contradicted = claims.contradiction(segment.base_offset for segment in segments)
        if contradicted is not None:
            raise damaged(self._directory, contradicted)
        if self._log_start_offset > claims.log_start_offset:
            raise damaged(
                self._directory,
                f"{LOG_START_OFFSET_FILE} says that it starts at {self._log_start_offset}, and {MANIFEST_FILE} at "
                f"{claims.log_start_offset}: one of the two is not of this log, or older than it",
            )
        self._log_start_offset = claims.log_start_offset
        self._promise(claims.flushed_below, MANIFEST_FILE)
        if claims.is_closed and (self._report.clean or self._recovery_point >= claims.end_offset):
            self._check_closed(claims, segments)
        elif self._report.clean:
            self._doubt_clean_stop("it was repaired, or its manifest is an older one")

    def _check_closed(self, claims: Manifest, segments: list[Segment]) -> None:
        """The log was closed, with all of it on the disk: it may have grown since, but not shrunk."""
        last = claims.segments[-1]
        path = next(segment.path for segment in segments if segment.base_offset == last.base_offset)
        size_bytes = self._storage.status(path).size_bytes
        if size_bytes < last.size_bytes:
            raise damaged(
                self._directory,
                f"{path} has {size_bytes} bytes, and {last.size_bytes} when it was closed, says {MANIFEST_FILE}",
            )
        self._promise(claims.end_offset, MANIFEST_FILE)
        later = [segment for segment in segments if segment.base_offset > last.base_offset]
        has_grown = any(self._storage.status(segment.path).size_bytes for segment in later)  # else a roll had failed
        if size_bytes > last.size_bytes or has_grown:
            self._doubt_clean_stop(f"{path} has {size_bytes} bytes, {last.size_bytes} when it was closed")

    def _promise(self, offset: int, source: str) -> None:
        """By the word of `source`, everything below `offset` is there."""
        if offset > self._must_reach:
            self._must_reach, self._promised_by = offset, source

    def _doubt_clean_stop(self, why: str) -> None:
        """A clean stop was marked, but not of this log as it is now."""
        if self._report.clean:
            logger.warning("%s: checking this log although the broker stopped cleanly: %s", self._directory, why)
            self._note_mended(self._directory, f"this log is checked although the broker stopped cleanly: {why}")
            self._report = replace(self._report, clean=False)

    def _start_over(self, segments: list[Segment], snapshots: SnapshotFiles, end_offset: int) -> None:
        """Everything in the log lies before its start: a power loss took what came after. Without a manifest only a
        file without a checksum says so: it may as well be wrong, and nothing is put out of use for it."""
        source = LOG_START_OFFSET_FILE if self._claims is None else MANIFEST_FILE
        what = f"it ends at {end_offset}, and {source} says that it starts at {self._log_start_offset}"
        if self._report.clean or self._claims is None:
            raise damaged(self._directory, f"{what}: its end is lost, or that file is not of this log")
        logger.warning("%s: %s; starting over", self._directory, what)
        self._manifest_cut([], end_offset)
        self._remove_segments(segments)
        snapshots.remove(snapshots.offsets)
        self._producers.load(())

    def _manifest_cut(self, kept: list[Segment], end_offset: int) -> None:
        """Before segments are removed: what the manifest names must be there."""
        if self._manifest is not None and self._claims is not None:
            self._manifest.replace(self._claims.cut([segment.base_offset for segment in kept], end_offset))

    def _check_size(self, segment: Segment) -> None:
        """A sealed segment below the recovery point is as long as it was when it was sealed."""
        entry = self._claims.entry(segment.base_offset) if self._claims is not None else None
        if entry is not None and entry.size_bytes not in (UNKNOWN, segment.size_bytes):
            raise damaged(
                self._directory,
                f"{segment.path} has {segment.size_bytes} bytes, and {entry.size_bytes} by the word of {MANIFEST_FILE}",
            )

    def _ends_early(self, end_offset: int) -> DamagedLog:
        return damaged(
            self._directory,
            f"it ends at offset {end_offset}, and {self._promised_by} says that everything below {self._must_reach} "
            "was on the disk: its end is lost, or that file is not of this log",
        )

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._storage,
            self._directory,
            base_offset,
            self._config,
            now_ms=self._now_ms,
            open_files=self._open_files,
        )

    def _loaded(self, segments: Segments, snapshots: SnapshotFiles, end_offset: int) -> LoadedLog:
        start_offset = max(self._log_start_offset, segments.first.base_offset)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(start_offset)
        snapshots.remove_above(end_offset)
        snapshots.remove_stray(segments.base_offsets)
        if snapshots.broken:
            self._report = replace(self._report, broken_snapshots=tuple(snapshots.broken))
            snapshots.remove_broken()
            snapshots.write(end_offset, self._producers.entries(), self._now_ms)
        recovery_point = end_offset if self._report.clean else min(self._recovery_point, end_offset)
        return LoadedLog(
            segments,
            self._epochs,
            self._producers,
            snapshots,
            start_offset,
            end_offset,
            recovery_point,
            self._written(segments, snapshots),
            self._report,
            self._manifest,
        )

    def _written(self, segments: Segments, snapshots: SnapshotFiles) -> list[str]:
        """The growing segment's own files are left out: its bytes lie above the recovery point, its indexes change."""
        if self._report.clean and not snapshots.broken:
            return [path for path, _ in self._report.mended if path == self._epochs.path]
        sealed = [path for segment in segments.sealed if segment in self._scanned for path in segment.file_paths()]
        above = min((segment.base_offset for segment in self._scanned), default=segments.active.base_offset)
        return [*sealed, self._epochs.path, *(snapshots.path(each) for each in snapshots.offsets if each >= above)]

    # --- segments ---

    def _open_segments(self, segments: list[Segment], snapshots: SnapshotFiles) -> int:
        """Open the trusted ones, scan the others; the end offset of the log."""
        trusted = self._trusted_count(segments)
        for position, segment in enumerate(segments[:-1]):
            if position < trusted:
                self._open_sealed(segment, segments[position + 1].base_offset)
        if trusted == len(segments):
            try:
                end_offset = self._open_growing(segments[-1])
            except CorruptMessage as error:
                raise damaged(self._directory, f"{segments[-1].path} was closed cleanly, yet: {error}") from error
            else:
                self._check_end(end_offset)
                self._check_transaction_indexes(segments, snapshots)
                self._restore_producers(segments, snapshots, end_offset)
                return end_offset
        self._check_transaction_indexes(segments[:trusted], snapshots)
        self._restore_producers(segments[:trusted], snapshots, segments[trusted].base_offset)
        return self._scan_segments(segments, trusted, snapshots)

    def _check_end(self, end_offset: int) -> None:
        claims = self._claims
        if claims is not None and end_offset != claims.end_offset:
            raise damaged(
                self._directory,
                f"{MANIFEST_FILE} says that it was closed at offset {claims.end_offset}, and it ends at {end_offset}",
            )

    def _trusted_count(self, segments: list[Segment]) -> int:
        """How many segments lie wholly below the recovery point; all, after a clean stop.

        One that ends right at the recovery point may have been sealed after that flush, its indexes never synced.
        """
        if self._report.clean:
            return len(segments)
        ends = (following.base_offset for following in segments[1:])
        return sum(1 for end in ends if end < self._recovery_point)

    def _open_sealed(self, segment: Segment, end_offset: int) -> None:
        try:
            segment.open_sealed(end_offset)
            self._check_indexes(segment)
        except CorruptIndex as error:
            self._check_size(segment)
            self._rebuild_indexes(segment, error)
        else:
            self._check_size(segment)

    def _check_indexes(self, segment: Segment) -> None:
        """Raise CorruptIndex if an index lost entries. A time index without its last one makes a segment look older
        than it is, to whoever looks for a time and to retention."""
        entry = self._claims.entry(segment.base_offset) if self._claims is not None else None
        if entry is None or entry.index_entries == UNKNOWN:
            return
        found = IndexCounts.of(segment)
        if found != entry.indexes:
            raise CorruptIndex(
                f"{segment.offset_index.path} or {segment.time_index.path}: {found} is not the {entry.indexes} that "
                f"{MANIFEST_FILE} has"
            )

    def _open_growing(self, segment: Segment) -> int:
        try:
            end = segment.open_growing()
            if self._report.clean:
                self._check_indexes(segment)
        except CorruptIndex as error:
            self._rebuild_indexes(segment, error)
            end = segment.open_growing()
        if end.leader_epoch != NO_LEADER_EPOCH:
            last_offset = end.next_offset - 1
            self._last_epoch = (EpochRun(end.leader_epoch, last_offset, last_offset),)
        return end.next_offset

    def _rebuild_indexes(self, segment: Segment, error: CorruptIndex) -> None:
        logger.warning("%s: rebuilding its indexes: %s", segment.path, error)
        self._note_mended(segment.path, str(error))
        segment.rebuild_indexes()
        self._note_rebuilt(segment)

    def _note_mended(self, path: str, what: str) -> None:
        self._report = replace(self._report, mended=(*self._report.mended, (path, what)))

    def _note_rebuilt(self, segment: Segment, scanned_bytes: int = 0) -> None:
        self._report = replace(
            self._report,
            rebuilt_indexes=(*self._report.rebuilt_indexes, segment.base_offset),
            scanned_bytes=self._report.scanned_bytes + scanned_bytes,
        )

    def _scan_segments(self, segments: list[Segment], first: int, snapshots: SnapshotFiles) -> int:
        """Recover the segments from `first` on, and drop from the list what comes after the first bad batch.

        Snapshots above were written without a sync, so they are written again on the way.
        """
        end_offset = segments[first].base_offset
        snapshots.remove_above(end_offset)
        for position in range(first, len(segments)):
            segment, following = segments[position], segments[position + 1 :]
            if position and segment.base_offset not in snapshots.offsets:
                snapshots.write(segment.base_offset, self._producers.entries(), self._now_ms)
            may_have_gaps = bool(following) or self._config.compacts  # what grows was never compacted
            file_bytes, end_offset = self._scan_segment(
                segment, max(end_offset, segment.base_offset), following[:1], may_have_gaps=may_have_gaps
            )
            self._scanned.append(segment)
            self._note_rebuilt(segment, scanned_bytes=file_bytes)
            torn_bytes = file_bytes - segment.size_bytes
            if torn_bytes or self._is_hole(segment, end_offset, following):
                if end_offset < self._must_reach:
                    raise self._ends_early(end_offset)
                self._manifest_cut(segments[: position + 1], end_offset)
                logger.warning("%s: cutting off %d bytes after offset %d", segment.path, torn_bytes, end_offset - 1)
                self._report = replace(self._report, truncated_bytes=torn_bytes)
                self._remove_segments(following)
                del segments[position + 1 :]
                segment.cut_durably(segment.size_bytes)
                break
            if following:
                segment.seal()
        return end_offset

    def _is_hole(self, segment: Segment, end_offset: int, following: list[Segment]) -> bool:
        """Whether a power loss took the end of a segment and left the next: a log is a prefix of what was written.
        Only compaction leaves gaps that belong there, perhaps under a policy of former times."""
        if not following or end_offset >= following[0].base_offset or self._config.compacts:
            return False
        sealed = self._claims.segments[:-1] if self._claims is not None else ()
        if (segment.base_offset, segment.size_bytes) in ((entry.base_offset, entry.size_bytes) for entry in sealed):
            return False  # it was never longer: the loss of what came after it was accepted
        return not _was_compacted(segment)

    def _scan_segment(
        self, segment: Segment, next_offset: int, following: list[Segment], *, may_have_gaps: bool
    ) -> tuple[int, int]:
        """Read a segment into its indexes, the epochs and the producers; its file's size and the offset after it."""
        file = segment.begin_scan()

        def batch_after(position: int) -> BatchHeader | None:
            if position < file.size:
                return _batch_at(file, position)
            return _batch_at(following[0].file(), 0) if following else None

        replay = ProducerReplay(self._producers, self._now_ms)
        for scanned in scan_above(file, self._recovery_point):
            good = _in_order(
                scanned.headers,
                next_offset,
                segment.base_offset,
                self._scanned_epoch,
                may_have_gaps=may_have_gaps,
                after=partial(batch_after, scanned.end_position),
            )
            replay.batches(scanned, good)
            segment.note_scanned(good)
            if scanned.headers[-1].last_offset < self._recovery_point:
                segment.note_cold(segment.size_bytes)
            if good:
                next_offset = good[-1].next_offset
                self._scanned_epochs.take(good)
                self._scanned_epoch = max(self._scanned_epoch, good[-1].leader_epoch)
            if len(good) != len(scanned.headers):
                break
        segment.transaction_index.replace(replay.aborted)
        return file.size, next_offset

    def _remove_segments(self, segments: list[Segment]) -> None:
        """The last one first, and durably before anything before them is cut: a hole in the log must never appear."""
        removed = (segment.base_offset for segment in reversed(segments))
        self._report = replace(self._report, removed_segments=(*self._report.removed_segments, *removed))
        for segment in reversed(segments):
            segment.release()
            for path in segment.file_paths():
                self._storage.remove(path)
        if segments:
            self._storage.sync_directory(self._directory)

    # --- what the segments tell ---

    def _restore_producers(self, segments: list[Segment], snapshots: SnapshotFiles, end_offset: int) -> None:
        used = restore_producers(self._producers, segments, snapshots, end_offset, self._now_ms)
        if used is None:
            self._check_producers_known(end_offset)
        if used != self._report.snapshot_offset:
            self._report = replace(self._report, snapshot_offset=used)

    def _check_producers_known(self, end_offset: int) -> None:
        """There is no snapshot to begin with at `end_offset` or below. A log that has lost its beginning to retention
        does not tell of all producers: a repeat of what they wrote would be stored again."""
        claims = self._claims
        if claims is None or not claims.segments or claims.segments[0].base_offset == 0:
            return
        crcs = {offset: crc for offset, crc in claims.snapshot_crcs.items() if offset <= end_offset}
        synced = {offset: crc for offset, crc in crcs.items() if self._was_synced(offset)}
        if not crcs or crcs[max(crcs)] == EMPTY_SNAPSHOT_CRC:
            return
        lost = (
            f"the memory of its producers is lost: {max(crcs):020d}{SNAPSHOT_SUFFIX} is missing, damaged, or not the "
            f"one written here, and the records before offset {claims.segments[0].base_offset} are gone, so that the "
            "log cannot tell which batches were stored already"
        )
        if synced and synced[max(synced)] != EMPTY_SNAPSHOT_CRC:
            raise damaged(self._directory, lost)
        logger.error("%s: going on as after a loss of power: %s", self._directory, lost)

    def _was_synced(self, offset: int) -> bool:
        """Whether the snapshot at `offset` was on the disk: a segment began with it, and what follows was flushed."""
        return self._report.clean or (self._claims is not None and offset < self._claims.flushed_below)

    def _check_transaction_indexes(self, segments: list[Segment], snapshots: SnapshotFiles) -> None:
        for position, segment in enumerate(segments):
            try:
                self._check_aborted(segment)
            except CorruptTransactionIndex as error:
                logger.warning("%s: rebuilding its transaction index: %s", segment.path, error)
                self._note_mended(segment.transaction_index.path, str(error))
                self._restore_producers(segments[:position], snapshots, segment.base_offset)
                replay = ProducerReplay(self._producers, self._now_ms)
                replay.segment(segment, segment.base_offset)
                segment.transaction_index.replace(replay.aborted)

    def _check_aborted(self, segment: Segment) -> None:
        """Raise CorruptTransactionIndex unless the index is the one that the manifest knows."""
        found = segment.transaction_index.checksum()
        entry = self._claims.entry(segment.base_offset) if self._claims is not None else None
        known = entry.aborted if entry is not None else None
        if known is not None and known != found:
            raise CorruptTransactionIndex(
                f"{segment.transaction_index.path}: {found.entries} entries with CRC {found.crc:08x} are not the "
                f"{known.entries} with CRC {known.crc:08x} that were written"
            )

    # --- leader epochs ---

    def _load_epochs(self) -> None:
        """What the file and the manifest say; which of them is right, the batches tell."""
        path, claims, problem = self._epochs.path, self._claims, None
        is_there = False
        try:
            is_there = self._epochs.load()
        except CorruptCheckpoint as error:
            problem = str(error).removeprefix(f"{path}: ")
        noted = self._epochs.entries
        if claims is None or claims.fits(noted):
            self._noted_epochs = [_NotedEpochs(noted, path, problem)]
        else:
            missing = "it is damaged or missing" if not is_there else f"it contradicts {MANIFEST_FILE}"
            self._noted_epochs = [_NotedEpochs(claims.epochs, path, problem or missing)]
            if is_there:
                contradicts = f"its leader epochs contradict {path.rpartition('/')[2]}, and the batches"
                self._noted_epochs.append(_NotedEpochs(noted, f"{self._directory}/{MANIFEST_FILE}", contradicts))
        self._scanned_epochs = BatchEpochs(self._noted_epochs[0].entries, self._sure_epochs_below)

    @property
    def _sure_epochs_below(self) -> int:
        return self._claims.knows_epochs_below if self._claims is not None else 0

    def _settle_epochs(self, segments: list[Segment], end_offset: int) -> None:
        """Choose what the batches agree to, or write down what they say: an epoch that is noted wrong would have good
        batches refused."""
        start_offset = max(self._log_start_offset, segments[0].base_offset)
        scanned = self._scanned_epochs.runs
        scanned_from = min((segment.base_offset for segment in self._scanned), default=MAX_OFFSET)
        trusted = [segment for segment in segments if segment.base_offset < scanned_from]
        wrong = ""
        for noted in self._noted_epochs:
            entries = with_later(noted.entries, scanned)
            asked = [*scanned, *self._last_epoch, *witnesses(trusted, entries, start_offset)]
            if self._scanned:
                asked += last_batch(trusted, scanned_from)
            said = contradiction(entries, asked, start_offset)
            if said is None:
                if lacks_beginning(entries, asked, start_offset):
                    entries = corrected(entries, self._read_epochs(trusted, segments), start_offset)
                self._take_epochs(noted, entries)
                return
            wrong = wrong or said
        known = self._noted_epochs[0]
        entries = with_later(known.entries, scanned)
        told = corrected(entries, self._read_epochs(trusted, segments), start_offset)
        if told != tuple(cut_end(cut_start(entries, start_offset), end_offset)):
            known, entries = known._replace(path=self._epochs.path, problem=wrong), told
        self._take_epochs(known, entries)

    def _read_epochs(self, trusted: list[Segment], segments: list[Segment]) -> tuple[EpochRun, ...]:
        if not trusted:
            return self._scanned_epochs.runs
        return read_epochs(segments, self._noted_epochs[0].entries, self._sure_epochs_below)

    def _take_epochs(self, known: _NotedEpochs, entries: tuple[EpochEntry, ...]) -> None:
        """A note that is only late, or lacks the beginning, can wait until somebody relies on it."""
        if known.problem is None:
            self._epochs.take(entries)
            return
        logger.warning("%s: %s; it is written anew, as the batches say", known.path, known.problem)
        self._note_mended(known.path, known.problem)
        self._epochs.restore(entries)


class _NotedEpochs(NamedTuple):
    """Leader epochs by the word of a file, and what else is wrong if they are the right ones."""

    entries: tuple[EpochEntry, ...]
    path: str
    problem: str | None


class ProducerReplay:
    """Feeds batches of the log to the producer state, and collects the transactions that were aborted on the way."""

    def __init__(self, producers: ProducerStateManager, now_ms: int) -> None:
        self._producers = producers
        self._now_ms = now_ms
        self.aborted: list[AbortedTransaction] = []

    def segment(self, segment: Segment, start_offset: int) -> None:
        """Replay the batches from `start_offset` on; raise CorruptMessage at one that is bad, instead of going on as if
        what it held had never been."""
        found = segment.find_batch(start_offset)
        if found is None:
            return
        position = found.position
        for scanned in scan_batches(segment.file(), position, segment.size_bytes, verify_crc=True):
            self.batches(scanned, scanned.headers)
            position = scanned.end_position
        if position != segment.size_bytes:
            raise CorruptMessage(f"{segment.path} has no good batch at position {position}")

    def batches(self, scanned: ScannedBatches, headers: list[BatchHeader]) -> None:
        """Replay the batches with these headers, the first of `scanned`."""
        if any(header.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) for header in headers):
            self._all_batches(scanned, headers)
        else:
            self._last_batches(headers)

    def _last_batches(self, headers: list[BatchHeader]) -> None:
        """Without transactions, a producer's state is its last batches: the others need not be replayed."""
        last: dict[int, deque[BatchHeader]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id in last:
                last[producer_id].append(header)
            elif producer_id != NO_PRODUCER_ID:
                last[producer_id] = deque((header,), KEPT_BATCHES)
        for batches in last.values():
            for header in batches:
                self._producers.replay(header, None, self._now_ms)

    def _all_batches(self, scanned: ScannedBatches, headers: list[BatchHeader]) -> None:
        position = 0
        for header in headers:
            if header.producer_id != NO_PRODUCER_ID:
                if header.is_control:
                    self._control_batch(header, scanned.data[position : position + header.size_bytes])
                else:
                    self._producers.replay(header, None, self._now_ms)
            position += header.size_bytes

    def _control_batch(self, header: BatchHeader, batch: memoryview) -> None:
        try:
            marker = read_control_marker(batch) if header.record_count else None
        except InvalidRecord:
            return  # a control record of another kind, such as KRaft's, ends no transaction
        completed = self._producers.replay(header, marker, self._now_ms)
        if completed is not None and completed.is_aborted:
            self.aborted.append(aborted_transaction(completed))


def aborted_transaction(completed: CompletedTransaction) -> AbortedTransaction:
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


def restore_producers(
    producers: ProducerStateManager,
    segments: list[Segment],
    snapshots: SnapshotFiles,
    end_offset: int,
    now_ms: int,
) -> int | None:
    """The producers as they were when the log ended at `end_offset`; the snapshot they were restored from."""
    snapshot = snapshots.newest(end_offset, now_ms)
    producers.load(snapshot.entries if snapshot else ())
    start_offset = snapshot.offset if snapshot else 0
    replay = ProducerReplay(producers, now_ms)
    for position, segment in enumerate(segments):
        segment_end = segments[position + 1].base_offset if position + 1 < len(segments) else end_offset
        if start_offset < segment_end and segment.size_bytes:
            replay.segment(segment, max(start_offset, segment.base_offset))
    return snapshot.offset if snapshot else None


def scan_above(file: File, recovery_point: int) -> Iterator[ScannedBatches]:
    """All batches of a file, verifying checksums only from the recovery point on: nothing below it can be torn."""
    position = 0
    for scanned in scan_batches(file, 0, file.size, verify_crc=False):
        if scanned.headers[-1].last_offset >= recovery_point:
            break
        yield scanned
        position = scanned.end_position
    yield from scan_batches(file, position, file.size, verify_crc=True)


def _was_compacted(segment: Segment) -> bool:
    """Whether offsets are missing between the batches of a segment, or within one."""
    next_offset = segment.base_offset
    for scanned in scan_batches(segment.file(), 0, segment.size_bytes, verify_crc=False):
        for header in scanned.headers:
            if header.base_offset != next_offset or header.record_count != header.last_offset_delta + 1:
                return True
            next_offset = header.next_offset
    return False


def _batch_at(file: File, position: int) -> BatchHeader | None:
    """The whole batch with the right checksum that begins there."""
    try:
        size = kernel.parse_header(file.read(position, HEADER_SIZE)).size_bytes
    except CorruptMessage:
        return None
    data = file.read(position, size) if size <= file.size - position else b""
    headers, _ = kernel.scan(data, 0, len(data), True)
    return headers[0] if headers else None


def _in_order(
    headers: list[BatchHeader],
    next_offset: int,
    base_offset: int,
    epoch: int,
    *,
    may_have_gaps: bool,
    after: Callable[[], BatchHeader | None],
) -> list[BatchHeader]:
    """The leading batches whose offsets and epochs only grow and fit an index: a valid checksum covers neither. A batch
    behind a gap, or the first of an epoch, which the next one contradicts, is the wrong one of the two; `after` tells
    which one follows the last of these, and is asked only if that is in doubt."""
    is_behind_gap = is_first_of_epoch = False
    count = len(headers)
    for position in range(count + 1):
        if position < count:
            header = headers[position]
        elif (is_behind_gap or is_first_of_epoch) and (witness := after()) is not None:
            header = witness
        else:
            break
        fits_index = position == count or header.last_offset - base_offset <= MAX_RELATIVE_OFFSET
        if header.base_offset < next_offset or not fits_index:
            return headers[: position - is_behind_gap]
        if NO_LEADER_EPOCH < header.leader_epoch < epoch:
            return headers[: position - is_first_of_epoch]
        is_behind_gap = header.base_offset > next_offset
        if is_behind_gap and not may_have_gaps:
            return headers[:position]
        is_first_of_epoch = header.leader_epoch > epoch
        next_offset, epoch = header.next_offset, max(epoch, header.leader_epoch)
    return headers
