"""One partition's log: assigns offsets, appends, reads, rolls, forgets.

Owns the offsets of a partition (start, end, high watermark, recovery point) and the order of effects: a batch is
judged, written with one write, and only then remembered. What was not written is not remembered; what was refused
leaves no trace. A log that was never written to has no files: its first record brings them. The parts do the work:
segments the bytes, the producer state the judging, the loader the recovery.

Not thread-safe: everything is called from one thread, except `FlushRequest.run` and `Removal.run`, which touch nothing
of it. It knows no clock, no replica and no client. What it is told as `now_ms` is a time that nobody turns
(`broker/steady_time.py`): what waits, or goes after a while, counts by it. Where the time of day matters, it is
`wall_ms`.

Kafka's names: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from oncelog.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange, RecordListTooLarge
from oncelog.log.config import LogConfig
from oncelog.log.file_slice import EMPTY, FileSlice
from oncelog.log.flush import FlushRequest, Unsynced
from oncelog.log.folders import see_doctor
from oncelog.log.leader_epochs import EpochEndOffset, LeaderEpochCache
from oncelog.log.log_news import LogNews
from oncelog.log.manifest import NO_FOREIGN_EPOCH, Manifest, ManifestFile
from oncelog.log.open_files import OpenFiles
from oncelog.log.producer_state import AppendOrigin, Duplicate, ProducerStateManager
from oncelog.log.recovery import (
    LoadedLog,
    LogLoader,
    RecoveryReport,
    aborted_transaction,
    nothing_loaded,
    restore_producers,
)
from oncelog.log.retention import deletable_count
from oncelog.log.segment import BatchSearch, FoundTimestamp, Segment, search_batch
from oncelog.log.segment_files import CLEANED_SUFFIX, SWAP_SUFFIX, Removal, mark_deleted
from oncelog.log.segments import Segments
from oncelog.log.snapshot_files import SnapshotFiles
from oncelog.log.storage import Storage, directory_of, is_out_of_descriptors
from oncelog.log.transaction_index import AbortedTransaction, CorruptTransactionIndex
from oncelog.log.verification import MAX_COLD_BYTES
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, ControlMarker, build_control_batch
from oncelog.records.validation import ValidatedBatch
from oncelog.types import NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType, TopicPartition

logger = logging.getLogger(__name__)

HIGH_WATERMARK = -1
"""As the offset of `delete_records`: everything that readers can see."""


class Appended(NamedTuple):
    """Where a batch is. `append_time_ms` is -1 unless the log set it, or the batch is a repeat that brings its own."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool


class LogOpening:
    """A log whose files were looked at, and not yet read. `finish` takes as long as there is to read, and may be called
    in another thread."""

    def __init__(
        self,
        loader: LogLoader,
        made: Callable[[LoadedLog], PartitionLog],
        topic_partition: TopicPartition,
        directory: str,
        now_ms: int,
    ) -> None:
        self._loader = loader
        self._made = made
        self._topic_partition = topic_partition
        self._directory = directory
        self._now_ms = now_ms
        with self._storage_errors():
            loader.prepare()
            self.scan_bytes = loader.scan_bytes

    def finish(self) -> PartitionLog:
        """Raises DamagedLog, and KafkaStorageError if the files cannot be read."""
        with self._storage_errors():
            return self._made(self._loader.finish()).opened(self._now_ms)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KafkaStorageError(
                f"cannot open the log of {self._topic_partition} in {self._directory}: {error}"
            ) from error


class PartitionLog:
    __slots__ = (
        "_damaged",
        "_directory",
        "_is_changing",
        "_is_rolling",
        "_jitter_ms",
        "_last_flush_ms",
        "_make_folder",
        "_manifest",
        "_news",
        "_open_files",
        "_removals",
        "_segments",
        "_snapshots",
        "_storage",
        "_touched",
        "_truncations",
        "_unsynced",
        "config",
        "durable_start_offset",
        "high_watermark",
        "is_half_made",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "offline",
        "on_change",
        "producers",
        "recovery",
        "recovery_point",
        "topic_partition",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._segments: Segments = loaded.segments
        self._snapshots: SnapshotFiles = loaded.snapshots
        self._manifest: ManifestFile | None = loaded.manifest
        self._removals: list[Removal] = []
        self._unsynced = Unsynced()
        for path in loaded.written:
            self._unsynced.written(path)
        if not loaded.report.clean:
            self._unsynced.renamed_in(directory_of(directory))
        self._open_files = open_files
        self._news = LogNews()  # its own, until it is published
        self._is_changing = False  # whether `_news` has it
        self._touched = not loaded.report.clean
        self._make_folder: Callable[[int], None] | None = None  # while there is none
        self.is_half_made = False
        """Whether making the files has failed, and may have left some."""
        self._last_flush_ms = 0
        self._jitter_ms = 0
        self._is_rolling = False
        self._truncations = 0
        self._damaged: frozenset[int] = frozenset()  # segments of which it was told
        self.topic_partition = topic_partition
        self.config = config
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producers: ProducerStateManager = loaded.producers
        self.recovery: RecoveryReport = loaded.report
        self.log_start_offset = loaded.log_start_offset
        self.durable_start_offset = loaded.log_start_offset if loaded.report.clean else 0
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.offline = False
        self.on_change: Callable[[TopicPartition], None] | None = None
        """Told when readers find it otherwise than before, but for what was appended: it begins or ends elsewhere, or
        is offline. Must do nothing with the log."""
        self._choose_jitter()
        if self.recovery_point < self.log_end_offset or not self.is_start_durable:
            self._note_change()

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        topic_id: UUID | None = None,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
        keeps_manifest: bool = True,
        open_files: OpenFiles | None = None,
    ) -> PartitionLog:
        """Open or create the log in `directory`, at once: see `opening`."""
        return cls.opening(
            storage,
            directory,
            topic_partition,
            config,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            foreign_epoch=foreign_epoch,
            keeps_manifest=keeps_manifest,
            open_files=open_files,
        ).finish()

    @classmethod
    def opening(
        cls,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        topic_id: UUID | None = None,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
        keeps_manifest: bool = True,
        open_files: OpenFiles | None = None,
    ) -> LogOpening:
        """Begin to open or create the log in `directory`. Not `clean` means: believe nothing above `recovery_point`
        unread.

        `foreign_epoch` is the last one in which an Apache Kafka or an older oncelog led this folder: a manifest from
        before is not believed.
        Raises DamagedLog if something is missing that was promised to be there.
        """
        manifest = ManifestFile(storage, directory, topic_partition, topic_id, foreign_epoch)
        loader = LogLoader(
            storage,
            directory,
            topic_partition,
            config,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset or 0,
            manifest=manifest if keeps_manifest else None,
            open_files=open_files,
        )
        made = partial(cls, storage, directory, topic_partition, config, open_files=open_files)
        return LogOpening(loader, made, topic_partition, directory, now_ms)

    @classmethod
    def unwritten(
        cls,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        make_folder: Callable[[int], None],
        topic_id: UUID | None = None,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
        open_files: OpenFiles | None = None,
    ) -> PartitionLog:
        """The empty log of a partition that nobody has written to. It answers everything without touching the disk;
        before its first record `make_folder` is called, as often as that raises OSError."""
        manifest = ManifestFile(storage, directory, topic_partition, topic_id, foreign_epoch, is_new=True)
        loaded = nothing_loaded(storage, directory, topic_partition, config, manifest, now_ms, open_files)
        log = cls(storage, directory, topic_partition, config, loaded, open_files)
        log._make_folder = make_folder
        log._last_flush_ms = now_ms
        return log

    def opened(self, now_ms: int) -> PartitionLog:
        """The log, ready to be used after its loading. Raises OSError."""
        self._begin_manifest()
        self._segments.active.release()  # whoever writes to it opens it: most are not written to soon
        self._last_flush_ms = now_ms
        return self

    def publish(self, news: LogNews) -> None:
        """Let the housekeeping see it, from the logs' thread: once it is open, and not while another thread is still at
        its files. What has happened to it so far is news then."""
        if self._is_changing:
            news.changed[self] = None
        if self._removals:
            news.removing[self] = None
        self._news = news

    @property
    def is_written(self) -> bool:
        """Whether the log has files."""
        return self._make_folder is None

    def _begin_change(self, now_ms: int) -> None:
        """Before the first change since the log was opened, or was durable. Raises KafkaStorageError, and then nothing
        has changed."""
        if self._make_folder is not None:
            try:
                self._make_files(self._make_folder, now_ms)
            except OSError as error:
                self.is_half_made = True
                raise KafkaStorageError(f"cannot create the log of {self.topic_partition}: {error}") from error
        self._note_change()
        self._touched = True

    def _note_change(self) -> None:
        self._is_changing = True
        self._news.changed[self] = None

    def settled(self) -> None:
        """Everything is durable: nobody need look at this log before its next change."""
        self._is_changing = False
        self._news.changed.pop(self, None)

    def _make_files(self, make_folder: Callable[[int], None], now_ms: int) -> None:
        """Each step may be repeated after a failure, and a kill after any of them leaves an empty log."""
        make_folder(now_ms)
        active = self._segments.active
        active.opened_ms = now_ms
        active.create()
        self._write_manifest()
        self._unsynced.renamed_in(self._directory)
        self._unsynced.renamed_in(directory_of(self._directory))
        self._make_folder = None
        self.is_half_made = False

    # --- appending ---

    def append(
        self,
        batch: bytearray | memoryview,
        validated: ValidatedBatch | BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        wall_ms: int = NO_TIMESTAMP,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 1,
        verified: bool = True,
    ) -> Appended:
        """Write one validated data batch, or recognise it as written already. Offset and epoch are set in place.

        `wall_ms` is what LogAppendTime stamps; without it, that is `now_ms`.
        """
        if self.offline:
            raise self._offline_error()
        if isinstance(validated, BatchHeader):
            header, max_timestamp = validated, validated.max_timestamp
        else:
            header, max_timestamp = validated.header, validated.max_timestamp
        has_producer = header.producer_id != NO_PRODUCER_ID
        if has_producer:
            decision = self.producers.check(header, origin, transaction_version=transaction_version, verified=verified)
            if isinstance(decision, Duplicate):
                original = decision.metadata
                return Appended(original.first_offset, original.timestamp, self.log_start_offset, True)
        append_time_ms = NO_TIMESTAMP
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = max_timestamp = now_ms if wall_ms == NO_TIMESTAMP else wall_ms
            kernel.stamp_append_time(batch, 0, header.size_bytes, append_time_ms)
        elif max_timestamp != header.max_timestamp:
            kernel.stamp_create_time(batch, 0, header.size_bytes, max_timestamp)
        base_offset = self._write(batch, header, max_timestamp, leader_epoch, now_ms)
        if has_producer:
            self.producers.update(header, base_offset, max_timestamp, now_ms)
        return Appended(base_offset, append_time_ms, self.log_start_offset, False)

    def append_marker(
        self,
        marker: ControlMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
        wall_ms: int = NO_TIMESTAMP,
        transaction_version: int = 1,
    ) -> Appended:
        """Write the marker that ends a producer's transaction in this partition.

        `wall_ms` is what it is stamped with; without it, that is `now_ms`.
        """
        if self.offline:
            raise self._offline_error()
        stamp_ms = now_ms if wall_ms == NO_TIMESTAMP else wall_ms
        batch = build_control_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=stamp_ms
        )
        header = kernel.parse_header(batch)
        self.producers.check_marker(header, marker, AppendOrigin.COORDINATOR, transaction_version=transaction_version)
        offset = self._write(batch, header, stamp_ms, leader_epoch, now_ms)
        completed = self.producers.complete_transaction(header, marker, offset, stamp_ms, now_ms)
        if completed is not None and completed.is_aborted:
            try:
                self._segments.active.transaction_index.append(aborted_transaction(completed))
            except OSError as error:
                # The marker is in the log and readers know of it. Nothing is flushed before the file has it too.
                logger.warning("the transaction index of %s will be written later: %s", self.topic_partition, error)
        return Appended(offset, NO_TIMESTAMP, self.log_start_offset, False)

    def _write(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> int:
        """Give the batch its offset and write it: all of it, or nothing and KafkaStorageError."""
        size = header.size_bytes
        if size > self.config.segment_bytes:
            raise RecordListTooLarge(
                f"the batch has {size} bytes, a segment of {self.topic_partition} at most {self.config.segment_bytes}"
            )
        if not self._is_changing:
            self._begin_change(now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self._segments.active
        try:
            if self._is_rolling or segment.must_roll(size, last_offset, max_timestamp, now_ms, self._jitter_ms):
                segment = self._roll(now_ms)
            if leader_epoch != self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(leader_epoch, base_offset)
        except OSError as error:
            raise KafkaStorageError(f"cannot prepare {self.topic_partition} for a write: {error}") from error
        kernel.stamp(batch, 0, base_offset, leader_epoch)
        try:
            segment.append(batch, last_offset, max_timestamp, now_ms)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        self.log_end_offset = last_offset + 1
        return base_offset

    def _undo_write(self, segment: Segment, error: OSError) -> KafkaStorageError:
        try:
            segment.discard_torn_write()
        except OSError as second:
            return self._go_offline("a write failed, and cutting it off failed too", second)
        return KafkaStorageError(f"cannot write to {self.topic_partition}; nothing was written: {error}")

    def _go_offline(self, what: str, error: Exception) -> KafkaStorageError:
        self.offline = True
        self._tell_change()
        logger.error("%s is offline: %s: %s", self.topic_partition, what, error)
        return KafkaStorageError(f"{self.topic_partition} is offline: {what}: {error}")

    def _tell_change(self) -> None:
        if self.on_change is not None:
            self.on_change(self.topic_partition)

    @contextmanager
    def _storage_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, CorruptTransactionIndex) as error:
            raise KafkaStorageError(f"cannot {what} {self.topic_partition}: {error}") from error

    def _offline_error(self) -> KafkaStorageError:
        return KafkaStorageError(f"{self.topic_partition} is offline after a disk error; restart with a healthy disk")

    def begin_epoch(self, epoch: int) -> None:
        """Note that a leader's epoch begins, though nothing is written in it so far."""
        self.leader_epochs.assign(epoch, self.log_end_offset)
        if self.is_written:
            try:
                self._write_out_epochs()
            except OSError as error:  # the next flush does it
                logger.warning("the leader epochs of %s cannot be written yet: %s", self.topic_partition, error)

    def _write_out_epochs(self) -> None:
        if self.leader_epochs.write_out():
            self._unsynced.written(self.leader_epochs.path)

    # --- rolling ---

    def maybe_roll(self, now_ms: int) -> bool:
        """Begin a new segment if the active one is older than `segment.ms`, without waiting for the next append."""
        active = self._segments.active
        if not active.size_bytes or active.waited_ms(now_ms, now_ms) <= self.config.segment_ms - self._jitter_ms:
            return False
        self.roll(now_ms)
        return True

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty."""
        if self._segments.active.size_bytes:
            with self._storage_errors("roll"):
                self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        """Everything that can fail comes first, and leaves the log as it was.

        Except that the new segment's file may be there already: then the next append must not go to the old one, whose
        offsets would run into the new one's. So a roll that has begun is tried until it succeeds.
        """
        self._touched = True
        self._note_change()
        self._is_rolling = True
        active = self._segments.active
        active.complete_time_index()
        active.write_out_indexes()
        self._snapshots.write(self.log_end_offset, self.producers.entries(), now_ms)
        segment = self._new_segment(self.log_end_offset, now_ms)
        segment.create()
        self._write_manifest([*self._segments.sealed, active], segment)
        active.seal()
        self._segments.add(segment)
        self._is_rolling = False
        self._unsynced.written(*active.file_paths(), self._snapshots.path(segment.base_offset), segment.path)
        self._choose_jitter()
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment(
            self._storage, self._directory, base_offset, self.config, now_ms=now_ms, open_files=self._open_files
        )

    def _choose_jitter(self) -> None:
        """Spread the rolling of many partitions: not random, so that a run can be repeated, but even."""
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        seed = zlib.crc32(f"{self.topic_partition}-{self._segments.active.base_offset}".encode())
        self._jitter_ms = seed % limit if limit > 0 else 0

    # --- reading ---

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int,
        at_least_one_batch: bool = True,
        max_cold_bytes: int = MAX_COLD_BYTES,
    ) -> FileSlice:
        """Whole batches from the one that holds `offset` on, all below `upper_bound` and of one segment.

        If the first batch alone is larger than `max_bytes` it comes all the same, unless `at_least_one_batch` is off.
        What lay on the disk when the log was opened is verified before it is handed out for the first time, up to
        `max_cold_bytes` at once. Raises CorruptMessage where it is damaged; everything else of the log is served.
        """
        if self.offline:
            raise self._offline_error()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is not within "
                f"[{self.log_start_offset}, {self.log_end_offset}]"
            )
        if offset >= upper_bound:
            return EMPTY
        try:
            return self._read(offset, max_bytes, upper_bound, at_least_one_batch, max_cold_bytes)
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.topic_partition} at offset {offset}: {error}") from error
        except CorruptMessage as error:
            raise self._tell_damage(offset, error) from error

    def _tell_damage(self, offset: int, error: CorruptMessage) -> CorruptMessage:
        """Once per segment: readers ask again and again."""
        hint = see_doctor(directory_of(self._directory), deep=True)
        told = CorruptMessage(f"{self.topic_partition} is not served at offset {offset}: {error}. {hint}")
        base_offset = self._segments.from_offset(offset)[0].base_offset
        if base_offset not in self._damaged:
            self._damaged |= {base_offset}
            logger.error("%s", told)
        return told

    def _read(
        self, offset: int, max_bytes: int, upper_bound: int, at_least_one_batch: bool, max_cold_bytes: int
    ) -> FileSlice:
        for segment in self._segments.from_offset(offset):
            segment_end = self._segments.end_offset(segment, self.log_end_offset)
            end_offset = upper_bound if upper_bound < segment_end else None
            found = segment.read(
                offset,
                max_bytes,
                end_offset,
                at_least_one_batch,
                segment_end=segment_end,
                epochs=self.leader_epochs.entries,
                max_cold_bytes=max_cold_bytes,
            )
            if found is not None:
                if found.size_bytes:
                    found.offset_bound = min(segment_end, upper_bound)
                return found
        return EMPTY  # compaction removed everything from here to the end

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start_offset, end_offset) must leave out."""
        aborted: list[AbortedTransaction] = []
        with self._storage_errors("read aborted transactions of"):
            for segment in self._segments.from_offset(start_offset):
                found, is_complete = segment.transaction_index.collect(start_offset, end_offset)
                aborted += found
                if is_complete:
                    break
        return aborted

    def find_offset_by_timestamp(self, timestamp: int, search: BatchSearch = search_batch) -> FoundTimestamp | None:
        """The first record that is not older than `timestamp`, as ListOffsets asks. `search` looks into a batch."""
        with self._storage_errors("look for a timestamp in"):
            for segment in self._segments.from_offset(self.log_start_offset):
                if segment.largest_timestamp() >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset, search)
                    if found is not None:
                        return found
        return None

    def max_timestamp(self, search: BatchSearch = search_batch) -> FoundTimestamp | None:
        """The first record that has the newest timestamp of the log."""
        segments = self._segments.from_offset(self.log_start_offset)
        with self._storage_errors("look for the newest timestamp in"):
            return max(segments, key=lambda segment: segment.max_timestamp().timestamp).find_max_timestamp(search)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The last epoch not after `epoch` that this log knows, and where it ended: (-1, -1) if none."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- offsets ---

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments(self) -> list[Segment]:
        """The sealed segments: nothing but `replace_segments` and retention changes them any more."""
        return self._segments.sealed

    @property
    def active_segment(self) -> Segment:
        return self._segments.active

    @property
    def last_stable_offset(self) -> int:
        """What `read_committed` may read up to: the first record of an undecided transaction, or the high watermark.
        What was deleted is not waited for."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see everything below `offset`. It never goes back, nor beyond the end."""
        offset = min(offset, self.log_end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    # --- forgetting ---

    def delete_records(self, before_offset: int) -> int:
        """Make `before_offset` the first offset of the log; the new start. The space comes back with retention."""
        if before_offset == HIGH_WATERMARK:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete up to {before_offset}: the high watermark of {self.topic_partition} is "
                f"{self.high_watermark}"
            )
        self._advance_log_start(before_offset)
        return self.log_start_offset

    def _advance_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self._note_change()
        with self._storage_errors("write the start offset of"):
            self._write_manifest(log_start_offset=offset)
        self.log_start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.producers.on_log_start_offset(offset)
        self._tell_change()
        try:
            if self.leader_epochs.truncate_from_start(offset):
                self._unsynced.written(self.leader_epochs.path)
        except OSError as error:
            logger.warning("%s keeps more epochs than it needs: %s", self.topic_partition, error)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; how many.

        The others have been silent for longer than their snapshot says, so a clean close writes it anew: otherwise, in
        a log that nobody writes to, silence would begin again with every restart.
        """
        self._touched = self._touched or len(self.producers) > 0
        return len(self.producers.expire(now_ms))

    def apply_retention(self, now_ms: int, wall_ms: int | None = None) -> list[Segment]:
        """Take out of use what `retention.ms`, `retention.bytes` and `delete_records` allow to go.

        The age of a record is judged by the clock that makes it younger, so that it goes late rather than early: the
        time of day may have been set forward, and the steady one have begun with a wrong time of day.
        """
        if self.offline:
            return []
        with self._storage_errors("apply retention to"):
            count = deletable_count(
                self._segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                last_stable_offset=self.last_stable_offset,
                now_ms=now_ms if wall_ms is None else min(now_ms, wall_ms),
            )
            if count == len(self._segments):
                self._roll(now_ms)
            deleted = self._segments.sealed[:count]
            if deleted:
                self._advance_log_start(self._segments.end_offset(deleted[-1], self.log_end_offset))
                self._write_manifest(self._segments.sealed[count:])
                self._segments.remove(deleted)
                self._retire(deleted, now_ms)
                self._snapshots.remove_below(self._segments.first.base_offset)
        return deleted

    def _retire(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Rename the files of segments that are no longer part of the log; their removal can wait."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._news.removing[self] = None
        self._unsynced.renamed_in(self._directory)
        for segment in segments:
            self._removals.append(mark_deleted(self._storage, segment.file_paths(), due_ms))

    def take_removals(self, now_ms: int) -> list[Removal]:
        """Removals whose `file.delete.delay.ms` is over. The caller runs them."""
        due = [removal for removal in self._removals if removal.due_ms <= now_ms]
        self._removals = [removal for removal in self._removals if removal.due_ms > now_ms]
        if not self._removals:
            self._news.removing.pop(self, None)
        return due

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment], now_ms: int) -> None:
        """Put sealed segments that the cleaner wrote as `.cleaned`, and synced, in the place of `old`.

        A crash during the first step undoes the whole, a later one completes it (see `interrupted`). The renaming goes
        from the last segment to the first, so that a remaining `.cleaned` file tells that the first step is not over.
        """
        self._announce_swap(old, new)
        try:
            self._segments.replace(old, new)
            self._retire(old, now_ms)
            for segment in new:
                segment.change_suffix(SWAP_SUFFIX, "")
            gone = {segment.base_offset for segment in old} - {segment.base_offset for segment in new}
            self._snapshots.remove([offset for offset in self._snapshots.offsets if offset in gone])
        except OSError as error:
            raise self._go_offline("replacing segments failed halfway", error) from error

    def _announce_swap(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """The first step, with all that needs space or a descriptor. If it fails it is undone: only a log that is
        neither one nor the other goes offline."""
        renamed: list[Segment] = []
        after = Segments(self._segments)
        after.replace(old, new)
        try:
            for segment in reversed(new):
                segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
                renamed.append(segment)
            self._storage.sync_directory(self._directory)
            self._write_manifest(after.sealed)
        except OSError as error:
            try:
                for segment in renamed:
                    segment.change_suffix(SWAP_SUFFIX, CLEANED_SUFFIX)
            except OSError as second:
                raise self._go_offline("replacing segments failed halfway", second) from error
            if len(renamed) < len(new):
                raise self._go_offline("replacing segments failed halfway", error) from error
            raise

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut off everything from the batch that holds `offset` on, and forget it."""
        if offset >= self.log_end_offset:
            return
        try:
            self._truncate_to(max(offset, 0), now_ms)
        except OSError as error:
            raise self._go_offline("truncation failed halfway", error) from error

    def end_if_truncated(self, offset: int) -> int:
        """Where the log would end after `truncate_to(offset)`: before the batch that holds it."""
        for segment in self._segments.from_offset(offset)[:1]:
            found = segment.find_batch(offset) if segment.base_offset < offset else None
            if found is not None:
                return min(offset, found.header.base_offset)
        return min(offset, self.log_end_offset)

    def _truncate_to(self, offset: int, now_ms: int) -> None:
        self._touched = True
        self._note_change()
        self._truncations += 1
        above = [segment for segment in self._segments if segment.base_offset >= offset]
        kept = [segment for segment in self._segments if segment.base_offset < offset]
        self._cut_manifest(kept, self.end_if_truncated(offset))
        for segment in reversed(above):  # the last one first: a crash must not leave a hole
            segment.release()
            for path in segment.file_paths():
                self._storage.remove(path)
        self._storage.sync_directory(self._directory)
        if kept:
            self.log_end_offset = kept[-1].truncate_to(offset)
        else:
            self.log_end_offset = offset
            kept = [self._new_segment(offset, now_ms)]
            kept[0].create()
        kept[-1].release()
        self._segments = Segments(kept)
        self._unsynced.written(self.leader_epochs.path, *kept[-1].file_paths())
        self._forget_above(self.log_end_offset, now_ms)
        self._write_manifest()

    def _forget_above(self, end_offset: int, now_ms: int) -> None:
        self.leader_epochs.truncate_from_end(end_offset)
        self._snapshots.remove_above(end_offset)
        restore_producers(self.producers, list(self._segments), self._snapshots, end_offset, now_ms)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.durable_start_offset = min(self.durable_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._tell_change()

    # --- durability ---

    def flush_request(self) -> FlushRequest | None:
        """What to sync so that everything appended so far survives a power loss, and nothing that was deleted does;
        None if that is so already."""
        if self.is_start_durable or self.offline:
            return self._flush_below(self.log_end_offset)
        return self._request(self._segments.from_offset(self.recovery_point), self.log_end_offset)

    @property
    def is_start_durable(self) -> bool:
        """Whether the manifest on the disk knows where the log starts."""
        return self._manifest is None or self.durable_start_offset == self.log_start_offset

    def flush_due(self, now_ms: int) -> FlushRequest | None:
        """A flush that `flush.messages` or `flush.ms` asks for, or that a sealed segment still needs."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed and (
            unflushed >= self.config.flush_messages or now_ms - self._last_flush_ms >= self.config.flush_ms
        ):
            return self._flush_below(self.log_end_offset)
        return self._flush_below(self._segments.active.base_offset)

    def _flush_below(self, offset: int) -> FlushRequest | None:
        if self.offline or offset <= self.recovery_point:
            return None
        segments = [
            segment for segment in self._segments.from_offset(self.recovery_point) if segment.base_offset < offset
        ]
        return self._request(segments, offset)

    def _request(self, segments: Iterable[Segment], offset: int) -> FlushRequest:
        """Sync the bytes of these segments, and everything else that changed since the last flush."""
        with self._storage_errors("flush"):
            self._segments.active.transaction_index.write_out()
            self._write_out_epochs()
            logs = [segment.file() for segment in segments]
            return FlushRequest.make(
                self._storage,
                offset,
                logs,
                self._unsynced.changes(),
                truncations=self._truncations,
                log_start_offset=self.log_start_offset,
            )

    def flushed(self, request: FlushRequest, now_ms: int) -> None:
        """A request has run: what it covered is durable, unless it was cut off and overwritten meanwhile. A log that
        went offline meanwhile promises nothing any more."""
        if self.offline:
            return
        self._unsynced.settle(request.settles)
        self._last_flush_ms = now_ms
        if request.truncations != self._truncations:
            return
        self.durable_start_offset = max(self.durable_start_offset, request.log_start_offset)
        if request.offset > self.recovery_point:
            self._advance_recovery_point(request.offset)

    def _advance_recovery_point(self, offset: int) -> None:
        """Once the sealed segments are durable the manifest may promise them."""
        are_sealed_durable = self.recovery_point < self._segments.active.base_offset <= offset
        self.recovery_point = offset
        if are_sealed_durable and self._manifest is not None and not self._manifest.is_closed:
            try:
                self._write_manifest()
            except OSError as error:
                logger.warning("%s promises less than it could: %s", self._manifest.path, error)

    def flush_failed(self, error: Exception) -> None:
        """A request has failed. The disk may have dropped what it could not write, so nothing here is sure any more;
        except that without a descriptor there was no sync that could have failed."""
        if is_out_of_descriptors(error):
            logger.warning("%s will be flushed later: %s", self.topic_partition, error)
        else:
            self._go_offline("a sync failed", error)

    def give_up(self, what: str, error: Exception) -> None:
        """Whoever owns this log cannot go on with it: serve nothing more of it until a restart."""
        self._go_offline(what, error)

    # --- the manifest: what the next start must find ---

    def _begin_manifest(self) -> None:
        """The manifest stands as it is, until something changes that it speaks of: after a clean stop, and after a kill
        if it lacks only what the next opening would find again. Most of many logs need no write then."""
        found, manifest = self.recovery, self._manifest
        is_as_it_was = found.clean and not (found.mended or found.rebuilt_indexes or found.broken_snapshots)
        if manifest is None or (is_as_it_was and manifest.is_closed) or manifest.holds(self._describe(manifest)):
            return
        self._write_manifest()

    def _write_manifest(
        self,
        sealed: Sequence[Segment] | None = None,
        active: Segment | None = None,
        *,
        log_start_offset: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        """Describe the log as it is, or as it is about to be; closed, if `end_offset` is given."""
        manifest = self._manifest
        if manifest is None:
            return
        self._write_out_epochs()  # or the manifest would know more than the file
        described = self._describe(manifest, sealed, active, log_start_offset=log_start_offset, end_offset=end_offset)
        if manifest.replace(described):
            self._unsynced.written(manifest.path)

    def _describe(
        self,
        manifest: ManifestFile,
        sealed: Sequence[Segment] | None = None,
        active: Segment | None = None,
        *,
        log_start_offset: int | None = None,
        end_offset: int | None = None,
    ) -> Manifest:
        return manifest.describe(
            self._segments.sealed if sealed is None else sealed,
            self._segments.active if active is None else active,
            self._snapshots,
            self.leader_epochs,
            log_start_offset=self.log_start_offset if log_start_offset is None else log_start_offset,
            flushed_below=self.recovery_point,
            end_offset=end_offset,
        )

    def _cut_manifest(self, kept: Sequence[Segment], end_offset: int) -> None:
        """Promise only what a truncation will leave."""
        manifest = self._manifest
        if manifest is not None and manifest.written is not None:
            manifest.replace(manifest.written.cut([segment.base_offset for segment in kept], end_offset))
            self._unsynced.written(manifest.path)

    # --- the end ---

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.producers.producer_id_expiration_ms = config.producer_id_expiration_ms
        for segment in self._segments:
            segment.config = config

    def close(self, *, clean: bool, now_ms: int) -> None:
        """Let go of the files. A clean close makes everything durable, with a snapshot: opening need not scan."""
        try:
            if clean and not self.offline:
                with self._storage_errors("cleanly close"):
                    self._close_cleanly(now_ms)
        finally:
            self._segments.active.release()

    def _close_cleanly(self, now_ms: int) -> None:
        if not self.is_written:
            return
        is_noted = self._manifest is None or self._manifest.is_closed
        if is_noted and not self._touched and self.log_end_offset in self._snapshots.offsets:
            return
        active = self._segments.active
        active.complete_time_index()
        active.write_out_indexes()
        self._write_last_snapshot(now_ms)
        self._unsynced.written(*active.file_paths(), self._snapshots.path(self.log_end_offset))
        self._flush_now(self._segments.from_offset(self.recovery_point), now_ms)
        self._write_manifest(end_offset=self.log_end_offset)  # only what is on the disk may be called closed
        self._flush_now((), now_ms)

    def _write_last_snapshot(self, now_ms: int) -> None:
        """Write the snapshot at the end of the log. Where retention emptied the log nothing else knows the producers:
        the manifest must not disown the new one if this process is killed in between, nor the power tear it."""
        is_replaced = self.log_end_offset in self._snapshots.offsets
        if is_replaced:
            self._snapshots.expect_another(self.log_end_offset)
            self._write_manifest()
        self._snapshots.write(self.log_end_offset, self.producers.entries(), now_ms, durable=is_replaced)

    def _flush_now(self, segments: Iterable[Segment], now_ms: int) -> None:
        request = self._request(segments, self.log_end_offset)
        try:
            request.run()
        except KafkaStorageError as error:
            self.flush_failed(error)
            raise
        self.flushed(request, now_ms)

    def delete(self) -> None:
        """Remove the log with all its files."""
        self._segments.active.release()
        with self._storage_errors("delete"):
            self._storage.remove_directory(self._directory)
