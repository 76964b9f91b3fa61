"""What can still be known of damaged metadata: from its newest whole snapshot, every whole batch, and the partitions'
folders.

Owns putting it together into a state, and writing that state as new metadata, with the damaged files kept beside it.
What nobody can know is made up on the safe side: producer ids go on far above every one that was seen, and a topic that
only its folders tell of keeps its records for ever until somebody configures it. Never called by a broker: a human
decides to accept what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from uuid import UUID

from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.end_offset_checkpoint import DurableEnd, Noted, encode_noted
from oncelog.controller.features import missing_features
from oncelog.controller.identity import Identity
from oncelog.controller.log_check import good_batches, log_files
from oncelog.controller.metadata_log import find_snapshots
from oncelog.controller.producer_ids import BLOCK_SIZE, NO_BROKER, NO_BROKER_EPOCH
from oncelog.controller.records import MetadataRecord, RecordType, UnreadableMetadata, decode_record
from oncelog.controller.snapshot import SnapshotId, decode_snapshot, encode_snapshot
from oncelog.controller.state import FIRST_PARTITION_EPOCH, ControllerState, ResourceType
from oncelog.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from oncelog.controller.transactions import TransactionBuffer
from oncelog.errors import KafkaError
from oncelog.log.batch_scan import scan_batches
from oncelog.log.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from oncelog.log.segment_files import LOG_SUFFIX, file_path
from oncelog.log.storage import File, Storage
from oncelog.named_tuple import NamedTuple
from oncelog.printable import counted
from oncelog.records.batch import BatchHeader, decode_records

SKIPPED_PRODUCER_IDS = 1000 * BLOCK_SIZE
"""Left out above the highest id that was seen: more than a broker reserves before anybody writes with one of them."""
DAMAGED_SUFFIX = ".damaged"
COMPACTED_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""What these topics hold is their newest record of each key, for ever; a broker creates them so."""


@dataclass(slots=True)
class Salvaged:
    state: ControllerState = field(default_factory=ControllerState)
    removed_topics: set[UUID] = field(default_factory=set)
    end_offset: int = 0
    """Behind everything that is known to have been there."""
    epoch: int = 0
    lost: list[str] = field(default_factory=list)
    """What was there and cannot be used, in words."""


class FoundPartition(NamedTuple):
    """A partition's folder, as far as its metadata goes."""

    topic: str
    partition: int
    topic_id: UUID | None
    leader_epoch: int


def salvage(storage: Storage, directory: str, noted: Noted) -> Salvaged:
    """Everything that can be read in the metadata's folder, damaged or not. Reads only."""
    found = Salvaged()
    start_offset = _replay_snapshot(storage, directory, found)
    transaction = TransactionBuffer()
    for name in log_files(storage, directory):
        path = f"{directory}/{name}"
        usable, lost = 0, _LostRecords(path)
        with closing(storage.open(path)) as file:
            for header, batch in _good_batches(storage, path, file):
                usable += header.size_bytes
                found.end_offset = max(found.end_offset, header.next_offset)
                found.epoch = max(found.epoch, header.leader_epoch)
                if header.next_offset > start_offset and not header.is_control:
                    _replay_batch(header, batch, start_offset, transaction, found, lost)
            if usable < file.size:
                found.lost.append(f"{file.size - usable} bytes of {path} cannot be read")
        found.lost += lost.in_words()
    if noted.end is not None:
        found.epoch = max(noted.end.epoch, found.epoch)
    if noted.end is not None and noted.end.end_offset > found.end_offset:
        found.lost.append(f"the metadata's offsets {found.end_offset} to {noted.end.end_offset - 1} are missing")
        found.end_offset = noted.end.end_offset
    return found


def _replay_snapshot(storage: Storage, directory: str, found: Salvaged) -> int:
    snapshots = find_snapshots(storage, directory)
    for snapshot in snapshots:
        found.end_offset, found.epoch = max(found.end_offset, snapshot.end_offset), max(found.epoch, snapshot.epoch)
    for snapshot in reversed(snapshots):
        path = f"{directory}/{snapshot.file_name}"
        try:
            records = decode_snapshot(storage.read_all(path))
        except UnreadableMetadata as error:
            found.lost.append(f"{path}: {error}")
            continue
        _replay(records, found, path)
        return snapshot.end_offset
    return 0


def _good_batches(storage: Storage, path: str, file: File) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The bytes of one are overwritten by those of later ones. Only a file with damage in it is read as a whole."""
    good_bytes = 0
    for step in scan_batches(file, 0, file.size, verify_crc=True):
        position = 0
        for header in step.headers:
            yield header, step.data[position : position + header.size_bytes]
            position += header.size_bytes
        good_bytes = step.end_position
    if good_bytes < file.size:
        data = storage.read_all(path)
        for batch in good_batches(path, data, good_bytes):
            yield batch.header, memoryview(data)[batch.position : batch.position + batch.header.size_bytes]


class _LostRecords:
    """Of one file: there may be as many as it has records, so only the first is told in full."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._first = ""
        self._count = 0

    def add(self, offset: int, why: object) -> None:
        self._first = self._first or f"{self.path}, offset {offset}: {why}"
        self._count += 1

    def in_words(self) -> list[str]:
        if self._count < 2:
            return [self._first] if self._first else []
        return [f"{self._first}; and {self._count - 1} more records of this file"]


def _replay_batch(
    header: BatchHeader,
    batch: memoryview,
    start_offset: int,
    transaction: TransactionBuffer,
    found: Salvaged,
    lost: _LostRecords,
) -> None:
    try:
        records = decode_records(batch)
    except KafkaError as error:
        lost.add(header.base_offset, error)
        return
    for record in records:
        if record.offset < start_offset:
            continue
        try:
            in_force = transaction.feed(decode_record(record.value or b""))
        except UnreadableMetadata as error:
            lost.add(record.offset, error)
        else:
            _replay(in_force, found, f"{lost.path}, offset {record.offset}")


def _replay(records: Iterable[MetadataRecord], found: Salvaged, where: str) -> None:
    """A record may tell of what only a damaged one would explain: it is passed over."""
    for record in records:
        if record.type is RecordType.REMOVE_TOPIC:
            found.removed_topics.add(record.body["topic_id"])
        try:
            found.state.replay(record)
        except (LookupError, ValueError):
            found.lost.append(f"{where}: a {record.type.name} record is about something that is not known")


def adopt(
    found: Salvaged, partitions: Collection[FoundPartition], identity: Identity, new_id: Callable[[], UUID]
) -> list[str]:
    """Make topics of the folders that the metadata does not know, unless it knows that they were deleted; what was
    adopted, in words."""
    adopted = []
    topics = found.state.topics
    for name in sorted({each.topic for each in partitions}):
        mine = [each for each in partitions if each.topic == name and each.topic_id not in found.removed_topics]
        if not mine:
            continue
        if name not in topics:
            topic_id = next((each.topic_id for each in mine if each.topic_id is not None), None) or new_id()
            for record in _new_topic(name, topic_id):
                found.state.replay(record)
            adopted.append(f"topic {name}, with records kept forever until it is configured again")
        topic = topics[name]
        epochs = {each.partition: each.leader_epoch for each in mine if each.topic_id in (None, topic.id)}
        missing = [index for index in range(max(epochs, default=-1) + 1) if index not in topic.partitions]
        for index in missing:
            found.state.replay(_new_partition(topic.id, index, epochs.get(index, 0), identity))
            without = "" if index in epochs else ", of which nothing is left"
            adopted.append(f"partition {name}-{index}{without}")
    return adopted


def rebuild(
    storage: Storage, data_directory: str, directory: str, found: Salvaged, identity: Identity, stamp: str, now_ms: int
) -> list[str]:
    """Write what was salvaged as new metadata; what was done, in words. The files of before are kept under new names.

    The new snapshot comes first: whatever interrupts this, the next attempt finds everything in it."""
    old = [name for name in storage.list_directory(directory) if _is_replaced(name)]
    for record in missing_features(found.state.features):
        found.state.replay(record)
    snapshot = SnapshotId(found.end_offset + 1, found.epoch + 1)
    data = encode_snapshot(found.state, now_ms, snapshot.epoch)
    storage.write_atomically(f"{directory}/{snapshot.file_name}", data)
    log = storage.open(file_path(directory, snapshot.end_offset, LOG_SUFFIX), create=True)
    log.sync()
    log.close()
    end = DurableEnd(snapshot.end_offset, snapshot.epoch)
    storage.write_atomically(f"{data_directory}/{END_OFFSET_FILE}", encode_noted(identity, end))
    for name in old:
        storage.rename(f"{directory}/{name}", f"{directory}/{name}.{stamp}{DAMAGED_SUFFIX}")
    storage.sync_directory(directory)
    done = [f"wrote {directory}/{snapshot.file_name}"]
    if old:
        files = counted(len(old), "file")
        done.append(f"kept {files} there as *.{stamp}{DAMAGED_SUFFIX}")
    return done


def skip_producer_ids(found: Salvaged, highest_seen: int) -> int:
    """From which id on producers get theirs now."""
    first = max(found.state.next_producer_id, highest_seen + 1) + SKIPPED_PRODUCER_IDS
    body = {"broker_id": NO_BROKER, "broker_epoch": NO_BROKER_EPOCH, "next_producer_id": first}
    found.state.replay(MetadataRecord(RecordType.PRODUCER_IDS, body))
    return first


def _is_replaced(name: str) -> bool:
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
    return name.endswith(kinds) or name == LEADER_EPOCHS_FILE


def _new_topic(name: str, topic_id: UUID) -> list[MetadataRecord]:
    settings = {"cleanup.policy": "compact"} if name in COMPACTED_TOPICS else {"retention.ms": "-1"}
    return [MetadataRecord(RecordType.TOPIC, {"name": name, "topic_id": topic_id})] + [
        MetadataRecord(
            RecordType.CONFIG,
            {"resource_type": ResourceType.TOPIC, "resource_name": name, "name": key, "value": value},
        )
        for key, value in settings.items()
    ]


def _new_partition(topic_id: UUID, index: int, leader_epoch: int, identity: Identity) -> MetadataRecord:
    body = {
        "partition_id": index,
        "topic_id": topic_id,
        "replicas": [identity.node_id],
        "isr": [identity.node_id],
        "leader": identity.node_id,
        "leader_epoch": leader_epoch,
        "partition_epoch": FIRST_PARTITION_EPOCH,
        "directories": [identity.directory_id],
    }
    return MetadataRecord(RecordType.PARTITION, body)
