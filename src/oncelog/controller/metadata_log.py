"""`__cluster_metadata-0`: the metadata records on the disk, and the snapshots that keep their log short.

Owns durability: `append` returns only after an fsync, and after the new end was noted outside of the log. The records
of one write are one batch, so a crash leaves all of them or none. The two newest snapshots are kept, and the log from
the older one on, so that a damaged snapshot costs nothing. A log that lost what was in force is not opened
(`log_check`). Reads what Kafka wrote as well: control batches are its quorum's and say nothing here. Never decides what
is written.

Every opening writes in an epoch of its own, as every start of a Kafka controller does: what was written by whom is told
apart, and an epoch never goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from uuid import UUID

from oncelog.controller.end_offset_checkpoint import DurableEnd, EndOffsetCheckpoint
from oncelog.controller.log_check import CheckedLog, check_log, check_whole, log_files
from oncelog.controller.records import (
    AnyRecord,
    DamagedMetadata,
    MetadataRecord,
    NewerMetadata,
    RecordType,
    UnreadableMetadata,
    decode_record,
    encode_all,
)
from oncelog.controller.snapshot import DamagedSnapshot, SnapshotId, decode_snapshot, encode_snapshot
from oncelog.controller.state import ControllerState
from oncelog.controller.topic_names import METADATA_TOPIC
from oncelog.controller.transactions import TransactionBuffer
from oncelog.errors import KafkaError, KafkaStorageError
from oncelog.log.batch_scan import scan_batches
from oncelog.log.checkpoints import CorruptCheckpoint
from oncelog.log.config import UNLIMITED_RETENTION, LogConfig
from oncelog.log.leader_epochs import LeaderEpochCache
from oncelog.log.partition_log import PartitionLog
from oncelog.log.producer_state import AppendOrigin
from oncelog.log.storage import Storage, is_out_of_descriptors
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, build_batch, decode_records
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
NO_EPOCH = 0
KEPT_SNAPSHOTS = 2
LOG_CONFIG = LogConfig(
    segment_bytes=8 << 20,
    retention_ms=UNLIMITED_RETENTION,
    retention_bytes=UNLIMITED_RETENTION,
    file_delete_delay_ms=0,
)
"""Only a snapshot lets go of metadata, never time or size."""


class MetadataLog:
    def __init__(
        self,
        storage: Storage,
        directory: str,
        log: PartitionLog,
        snapshots: list[SnapshotId],
        epoch: int,
        durable_end: EndOffsetCheckpoint,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._log = log
        self._snapshots = snapshots
        self._epoch = epoch
        self._last_epoch = NO_EPOCH
        """Of the last batch. Not that of `leader-epoch-checkpoint`, which has no checksum."""
        self._durable_end = durable_end
        self.removed_topics: set[UUID] = set()
        """Topics whose deletion the log tells of, or told of when it was opened."""
        self._untrue_from: int | None = None
        """Where records begin that were appended and never synced: they are cut off before the next ones come."""
        self.bytes_since_snapshot = 0
        # The log ends inside a metadata transaction: what is appended would belong to it, unless it is aborted first.
        self.has_open_transaction = False

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        checked: CheckedMetadata,
        now_ms: int,
        *,
        durable_end: EndOffsetCheckpoint,
        last_epoch: int = NO_EPOCH,
    ) -> MetadataLog:
        """Open or create the log that was found to be as `checked` says, whose state is in force from now on.
        `last_epoch` is an epoch that is known to be used. The first to write."""
        snapshots, last = checked.snapshots, checked.log.last
        log = PartitionLog.open(
            storage, directory, METADATA_PARTITION, LOG_CONFIG, now_ms=now_ms, clean=False, keeps_manifest=False
        )
        if log.log_end_offset != checked.log.end_offset:
            raise DamagedMetadata(
                f"{directory} ends at offset {log.log_end_offset} when it is opened; its batches go on to "
                f"{checked.log.end_offset}"
            )
        log.advance_high_watermark(log.log_end_offset)
        used = max(last_epoch, log.leader_epochs.latest_epoch, *(snapshot.epoch for snapshot in snapshots))
        metadata_log = cls(storage, directory, log, snapshots, used + 1, durable_end)
        metadata_log._last_epoch = last.header.leader_epoch if last else NO_EPOCH
        metadata_log.removed_topics = checked.removed_topics
        metadata_log.has_open_transaction = checked.has_open_transaction
        metadata_log.bytes_since_snapshot = checked.bytes_since_snapshot
        return metadata_log

    def settle(self, now_ms: int) -> None:
        """Make durable what was found, which is in force from now on, and note its end. Raises KafkaStorageError."""
        if self._log.flush_request() is not None:
            self._flush(now_ms, self._log.log_end_offset)
        self._note_end()

    def _note_end(self) -> None:
        self._durable_end.note(DurableEnd(self._log.log_end_offset, self._last_epoch))

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Of the last batch."""
        return self._last_epoch

    def append(self, records: Sequence[AnyRecord], now_ms: int) -> None:
        """Raises KafkaStorageError; the records are then not in force, though a restart may find them."""
        self._cut_untrue(now_ms)
        base_offset = self._log.log_end_offset
        rows = ((now_ms, None, frame, ()) for frame in encode_all(records))
        batch = build_batch(rows, leader_epoch=self._epoch)
        self._log.append(
            batch,
            kernel.parse_header(batch),
            leader_epoch=self._epoch,
            now_ms=now_ms,
            origin=AppendOrigin.REPLICATION,
        )
        self._flush(now_ms, base_offset)
        self._last_epoch = self._epoch
        self._note_end()
        self.bytes_since_snapshot += len(batch)

    def _flush(self, now_ms: int, base_offset: int) -> None:
        """Make durable what was appended from `base_offset` on. If that fails it is not in force, and the next record
        must not follow it as if it were. Without a descriptor there was no sync, and so nothing is in doubt: it can be
        cut off. After a sync that failed, nobody knows what is there."""
        try:
            request = self._log.flush_request()
        except KafkaStorageError:
            self._untrue_from = base_offset
            raise
        assert request is not None, "something was appended"
        try:
            request.run()
        except KafkaStorageError as error:
            if is_out_of_descriptors(error):
                self._untrue_from = base_offset
            else:
                self._log.give_up("its records could not be flushed", error)
            raise
        self._log.flushed(request, now_ms)
        self._log.advance_high_watermark(self._log.log_end_offset)

    def _cut_untrue(self, now_ms: int) -> None:
        """Raises KafkaStorageError while that cannot be done."""
        if self._untrue_from is None:
            return
        try:
            self._log.flush_request()  # what is missing for this, or that, would stop the cutting halfway
            self._storage.sync_directory(self._directory)
        except (OSError, KafkaStorageError) as error:
            raise KafkaStorageError(f"records that could not be synced cannot be cut off yet: {error}") from error
        self._log.truncate_to(self._untrue_from, now_ms)
        self._untrue_from = None

    def write_snapshot(self, state: ControllerState, now_ms: int) -> None:
        """Write the whole state beside the log, then let go of the log before the snapshot that is now second."""
        snapshot = SnapshotId(self._log.log_end_offset, self._epoch)
        data = encode_snapshot(state, now_ms, self._epoch)
        self._storage.write_atomically(f"{self._directory}/{snapshot.file_name}", data)
        self._snapshots = sorted({*self._snapshots, snapshot})
        self.bytes_since_snapshot = 0
        for old in self._snapshots[:-KEPT_SNAPSHOTS]:
            self._storage.remove(f"{self._directory}/{old.file_name}")
        self._snapshots = self._snapshots[-KEPT_SNAPSHOTS:]
        if len(self._snapshots) == KEPT_SNAPSHOTS:
            self._log.delete_records(self._snapshots[0].end_offset)
            self._log.apply_retention(now_ms)
            for removal in self._log.take_removals(now_ms):
                removal.run()

    def abort_transaction(self, reason: str, now_ms: int) -> None:
        """Raises KafkaStorageError."""
        self.append([MetadataRecord(RecordType.ABORT_TRANSACTION, {"reason": reason})], now_ms)
        self.has_open_transaction = False

    def close(self, now_ms: int) -> None:
        try:
            self._cut_untrue(now_ms)
        except KafkaStorageError as error:
            logger.warning("the next start finds changes that were refused: %s", error)
        self._log.close(clean=True, now_ms=now_ms)
        self._durable_end.close()


class CheckedMetadata(NamedTuple):
    log: CheckedLog
    snapshots: list[SnapshotId]
    removed_topics: set[UUID]
    """Topics whose deletion the log tells of."""
    has_open_transaction: bool
    bytes_since_snapshot: int


def check_metadata(
    storage: Storage,
    directory: str,
    state: ControllerState,
    *,
    noted: DurableEnd | None,
    was_stopped_cleanly: bool,
) -> CheckedMetadata:
    """Look at all the files before anything changes them, and replay into the empty `state` the newest whole snapshot
    and what the log says after it. Raises UnreadableMetadata."""
    snapshots = find_snapshots(storage, directory)
    log = check_log(storage, directory)
    began = _latest_epoch_start(storage, directory)
    check_whole(log, directory, noted=noted, snapshots=snapshots, began=began, was_stopped_cleanly=was_stopped_cleanly)
    start_offset = _load_newest_snapshot(storage, directory, snapshots, state)
    if start_offset < log.start_offset:
        raise DamagedMetadata(
            f"{directory} holds offsets {log.start_offset} to {log.end_offset}, and no snapshot leads there (the best "
            f"one ends at {start_offset}): files are missing"
        )
    return CheckedMetadata(log, snapshots, *_replay_log(storage, directory, log, start_offset, state))


def _replay_log(
    storage: Storage, directory: str, log: CheckedLog, start_offset: int, state: ControllerState
) -> tuple[set[UUID], bool, int]:
    """The last of CheckedMetadata."""
    transaction = TransactionBuffer()
    removed_topics: set[UUID] = set()
    read_bytes = 0
    for path, header, batch in _batches(storage, directory, log):
        if header.next_offset <= start_offset:
            continue
        read_bytes += header.size_bytes
        if header.is_control:
            continue
        offset = header.base_offset
        try:
            for record in decode_records(batch):
                offset = record.offset
                if offset < start_offset:
                    continue
                records = transaction.feed(decode_record(record.value or b""))
                replay_all(records, state)
                removed_topics.update(each.body["topic_id"] for each in records if each.type is RecordType.REMOVE_TOPIC)
        except UnreadableMetadata as error:
            raise type(error)(f"{path}, offset {offset}: {error}") from error
        except KafkaError as error:
            raise DamagedMetadata(f"{path}, offset {offset}: {error}") from error
    return removed_topics, transaction.is_open, read_bytes


def _batches(storage: Storage, directory: str, log: CheckedLog) -> Iterator[tuple[str, BatchHeader, memoryview]]:
    """All that are good. The bytes of one are overwritten by those of later ones."""
    for name in log_files(storage, directory):
        path = f"{directory}/{name}"
        is_last = log.bad is not None and log.bad.path == path
        with closing(storage.open(path)) as file:
            end = log.bad.position if log.bad is not None and is_last else file.size
            for step in scan_batches(file, 0, end, verify_crc=False):
                position = 0
                for header in step.headers:
                    yield path, header, step.data[position : position + header.size_bytes]
                    position += header.size_bytes
        if is_last:
            return


def find_snapshots(storage: Storage, directory: str) -> list[SnapshotId]:
    names = storage.list_directory(directory) if storage.exists(directory) else []
    found = (SnapshotId.of_file(name) for name in names)
    return sorted(snapshot for snapshot in found if snapshot is not None)


def _latest_epoch_start(storage: Storage, directory: str) -> int:
    """Where the latest epoch began, by the word of a file without a checksum; 0 if it says nothing."""
    epochs = LeaderEpochCache(storage, directory)
    try:
        epochs.load()
    except CorruptCheckpoint:
        return 0
    return epochs.entries[-1].start_offset if epochs.entries else 0


def _load_newest_snapshot(storage: Storage, directory: str, snapshots: list[SnapshotId], state: ControllerState) -> int:
    """Replay the newest snapshot that is whole, and return the offset from which the log continues it. Snapshots that
    are not whole are forgotten."""
    while snapshots:
        path = f"{directory}/{snapshots[-1].file_name}"
        try:
            records = decode_snapshot(storage.read_all(path))
        except DamagedSnapshot as error:
            logger.warning("%s is not used: %s", path, error)
            snapshots.pop()
            continue
        except NewerMetadata as error:
            raise NewerMetadata(f"{path}: {error}") from error
        try:
            replay_all(records, state)
        except DamagedMetadata as error:
            raise DamagedMetadata(f"{path}: {error}") from error
        return snapshots[-1].end_offset
    return 0


def replay_all(records: Iterable[MetadataRecord], state: ControllerState) -> None:
    for record in records:
        try:
            state.replay(record)
        except (LookupError, ValueError) as error:
            raise DamagedMetadata(f"a {record.type.name} record does not fit what came before it") from error
