"""What is wrong with the files of a partition or of a data folder: what opening would ask, without opening.

Owns the words in which damage at rest is told (`Finding`), and looking for it. Everything here but `accept_loss` only
reads, so it may be asked about a folder that nobody should touch; no broker may run on the folder meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.errors import OncelogError
from oncelog.log import checkpoints, folders
from oncelog.log.batch_scan import SCAN_BYTES, scan_batches
from oncelog.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
)
from oncelog.log.config import LogConfig
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.manifest import NO_FOREIGN_EPOCH, CorruptManifest, Manifest, SegmentEntry, encode, read_manifest
from oncelog.log.overlay_storage import OverlayStorage
from oncelog.log.partition_log import PartitionLog
from oncelog.log.partition_register import PartitionRegister
from oncelog.log.segment_files import LOG_SUFFIX, file_path, offset_of
from oncelog.log.storage import Storage
from oncelog.types import TopicPartition

DAMAGED_SUFFIX: Final = ".damaged"
"""Of the copy of a segment that `accept_loss` cuts. Nobody reads it again."""


class Severity(Enum):
    NOTE = "note"  # nothing is lost and nothing needs doing
    REPAIRED_AT_START = "repaired at start"  # the next start puts it right from what else is there
    LOSS = "loss"  # records are gone or cannot be believed: the partition is not served until that is accepted


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    path: str
    """The file or folder."""
    problem: str
    """What is wrong with it, and what was expected."""
    consequence: str
    """What the broker does about it at its next start."""
    severity: Severity
    remedy: str
    """What to do."""
    can_repair: bool = False
    """Whether `accept_loss` makes the partition start again, without what is lost."""


def inspect_partition(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    verify_batches: bool = False,
) -> list[Finding]:
    """What is wrong with one partition's folder. `clean`, `recovery_point` and `log_start_offset` are what the data
    folder's checkpoints say of it; `verify_batches` reads every batch and checks its CRC and its offsets."""
    try:
        log = PartitionLog.open(
            OverlayStorage(storage),
            directory,
            topic_partition,
            LogConfig(),
            now_ms=0,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            foreign_epoch=foreign_epoch,
        )
    except OncelogError as error:
        problem = str(error).removesuffix(f". {folders.see_doctor(directory.rpartition('/')[0])}")
        return [_loss(directory, problem), *(_verify(storage, directory) if verify_batches else ())]
    found = [_mended(path, what) for path, what in log.recovery.mended]
    for offset in log.recovery.broken_snapshots:
        found.append(_mended(f"{directory}/{offset:020d}.snapshot", "it is damaged, or not the one written here"))
    if log.recovery.truncated_bytes:
        cut = f"{log.recovery.truncated_bytes} bytes after offset {log.log_end_offset - 1} are no whole batch"
        consequence = "they are cut off: after a crash, this is a write that nobody was told of"
        found.append(Finding(directory, cut, consequence, Severity.NOTE, "nothing"))
    return [*found, *(_verify(storage, directory) if verify_batches else ())]


def _loss(path: str, problem: str) -> Finding:
    return Finding(
        path,
        problem,
        "the partition is offline (KAFKA_STORAGE_ERROR); the others are served",
        Severity.LOSS,
        "put the files back from a backup, or accept that what is missing is lost",
        can_repair=True,
    )


def _mended(path: str, problem: str) -> Finding:
    return Finding(path, problem, "it is rebuilt from the log", Severity.REPAIRED_AT_START, "nothing: start the broker")


def _verify(storage: Storage, directory: str) -> Iterator[Finding]:
    """Every batch of every segment, from end to end."""
    for base_offset in _base_offsets(storage, directory):
        path = file_path(directory, base_offset, LOG_SUFFIX)
        size_bytes, good_bytes, _ = _good_bytes(storage, path, base_offset)
        if good_bytes != size_bytes:
            yield Finding(
                path,
                f"no good batch at position {good_bytes} of {size_bytes}",
                "clients that read it see a wrong checksum or offset",
                Severity.LOSS,
                "put the file back from a backup, or accept that everything from there to its end is lost",
                can_repair=True,
            )


def _base_offsets(storage: Storage, directory: str) -> list[int]:
    names = storage.list_directory(directory) if storage.exists(directory) else []
    return sorted(offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None)


def _good_bytes(storage: Storage, path: str, base_offset: int) -> tuple[int, int, int]:
    """The size of a segment's file, how much of it is good batches in order, and the offset after them."""
    file = storage.open(path)
    position, next_offset = 0, base_offset
    for scanned in scan_batches(file, 0, file.size, verify_crc=True):
        for header in scanned.headers:
            if header.base_offset < next_offset:
                return file.size, position, next_offset
            position += header.size_bytes
            next_offset = header.next_offset
    return file.size, position, next_offset


def inspect_data_folder(
    storage: Storage,
    directory: str,
    known: Iterable[TopicPartition] | None = None,
    *,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    verify_batches: bool = False,
) -> list[Finding]:
    """What is wrong with the checkpoints of a data folder and with every partition in it. `known` are the partitions
    that the metadata has; None: it cannot be read, so those that the folder has are taken for all."""
    points, unreadable = {}, []
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE):
        try:
            points[name] = checkpoints.read_offsets(storage, directory, name)
        except CorruptCheckpoint as error:
            points[name] = {}
            unreadable.append(_mended(f"{directory}/{name}", str(error)))
    clean = storage.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    there = {tp for name in storage.list_directory(directory) if (tp := folders.partition_of(name)) is not None}
    wanted = there if known is None else set(known)
    found = list(unreadable)
    for topic_partition in sorted(wanted & there):
        found += inspect_partition(
            storage,
            f"{directory}/{folders.name_of(topic_partition)}",
            topic_partition,
            clean=clean,
            recovery_point=points[RECOVERY_POINT_FILE].get(topic_partition, 0),
            log_start_offset=points[LOG_START_OFFSET_FILE].get(topic_partition),
            foreign_epoch=foreign_epoch,
            verify_batches=verify_batches,
        )
    registered = PartitionRegister(storage, directory).load()
    was_here = points[RECOVERY_POINT_FILE].keys() if registered is None else {each[0] for each in registered}
    found += [
        _loss(f"{directory}/{folders.name_of(topic_partition)}", "the folder is missing, with all its records")
        for topic_partition in sorted((wanted & was_here) - there)
    ]
    return found


def accept_loss(storage: Storage, directory: str, topic_partition: TopicPartition) -> list[str]:
    """Make what is left of a partition all there is, so that the next start serves it; what was done, in words.

    Segments are cut before their first bad batch, and a copy of each is kept. The manifest and the checkpoints of the
    data folder `directory` say what is there. Offsets that were given out are not given out again, as far as they are
    known: the log goes on where it is known to have ended."""
    path = f"{directory}/{folders.name_of(topic_partition)}"
    recovery_point = _offset_in(storage, directory, RECOVERY_POINT_FILE, topic_partition)
    start_offset = _offset_in(storage, directory, LOG_START_OFFSET_FILE, topic_partition)
    manifest = _believed_manifest(storage, path)
    done = []
    storage.make_directory(path)
    entries, end_offset = [], 0
    for base_offset in _base_offsets(storage, path):
        good_bytes, end_offset, what = _cut(storage, file_path(path, base_offset, LOG_SUFFIX), base_offset)
        done += what
        known = manifest.entry(base_offset) if manifest is not None else None
        entry = known or SegmentEntry(base_offset)
        entries.append(SegmentEntry(base_offset, good_bytes, entry.aborted_count, entry.aborted_crc))
    promised = [recovery_point, start_offset]
    if manifest is not None:
        promised += [manifest.end_offset, manifest.flushed_below, manifest.log_start_offset, *_bases(manifest)]
    goes_on_at = max(end_offset, *promised)
    if not entries or goes_on_at > end_offset:
        storage.open(file_path(path, goes_on_at, LOG_SUFFIX), create=True)
        entries.append(SegmentEntry(goes_on_at))
        done.append(f"{path} goes on at offset {goes_on_at}: those before were given out")
    entries[-1] = SegmentEntry(entries[-1].base_offset)
    first = entries[0].base_offset
    known_start = manifest.log_start_offset if manifest is not None else start_offset
    accepted = Manifest(
        tuple(entries),
        max(first, known_start if known_start <= goes_on_at else first),
        0,
        manifest.epochs if manifest is not None else (),
        topic_id=manifest.topic_id if manifest is not None else None,
        foreign_epoch=manifest.foreign_epoch if manifest is not None else NO_FOREIGN_EPOCH,
    )
    storage.write_atomically(f"{path}/{MANIFEST_FILE}", encode(accepted))
    _forget_checkpoints(storage, directory, topic_partition)
    return [*done, f"{path}/{MANIFEST_FILE} says what is there: {len(entries)} segments"]


def _bases(manifest: Manifest) -> list[int]:
    return [entry.base_offset for entry in manifest.segments]


def _believed_manifest(storage: Storage, path: str) -> Manifest | None:
    try:
        return read_manifest(storage, path)
    except CorruptManifest:
        return None


def _cut(storage: Storage, path: str, base_offset: int) -> tuple[int, int, list[str]]:
    """Cut a segment before its first bad batch; the bytes left, the offset after them, and what was done."""
    size_bytes, good_bytes, end_offset = _good_bytes(storage, path, base_offset)
    if good_bytes == size_bytes:
        return good_bytes, end_offset, []
    file, copy = storage.open(path), storage.open(path + DAMAGED_SUFFIX, create=True)
    copy.truncate(0)
    for position in range(0, size_bytes, SCAN_BYTES):
        copy.append(file.read(position, SCAN_BYTES))
    copy.sync()
    file.truncate(good_bytes)
    file.sync()
    return good_bytes, end_offset, [f"{path} was cut to {good_bytes} bytes; a copy is {path}{DAMAGED_SUFFIX}"]


def _offset_in(storage: Storage, directory: str, name: str, topic_partition: TopicPartition) -> int:
    try:
        return checkpoints.read_offsets(storage, directory, name).get(topic_partition, 0)
    except CorruptCheckpoint:
        return 0


def _forget_checkpoints(storage: Storage, directory: str, topic_partition: TopicPartition) -> None:
    """All of it is read at the next start, from where the manifest says that it starts."""
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE):
        try:
            offsets = checkpoints.read_offsets(storage, directory, name)
        except CorruptCheckpoint:
            continue
        if offsets.pop(topic_partition, None) is not None:
            checkpoints.write_offsets(storage, directory, name, offsets)
