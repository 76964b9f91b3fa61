"""Reads the metadata log's files before anything opens them: whether what they hold is whole.

Opening a log after a crash cuts it off at the first bad batch. That is right for the torn write of an append that
nobody heard of, and only for it: metadata is synced before it is in force, so whatever else is bad or missing was in
force, and cutting it off would let topics vanish and producer ids be given out twice. Owns that judgement; writes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.end_offset_checkpoint import DurableEnd
from oncelog.controller.records import DamagedMetadata
from oncelog.controller.snapshot import SnapshotId
from oncelog.log.batch_scan import scan_batches
from oncelog.log.segment_files import LOG_SUFFIX, offset_of
from oncelog.log.storage import File, Storage
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import MAGIC, BatchHeader
from oncelog.types import NO_LEADER_EPOCH

MAGIC_AT = 16
"""Where a batch has its magic: how the next one is looked for behind damage."""


class FoundBatch(NamedTuple):
    path: str
    position: int
    header: BatchHeader


class BadBytes(NamedTuple):
    """Where the good part of the log ends, in a file that goes on."""

    path: str
    position: int
    size_bytes: int
    why: str
    good_after: tuple[FoundBatch, ...]
    """Whole batches behind it, in this file and later ones: then it is not a torn write."""


class CheckedLog(NamedTuple):
    start_offset: int
    end_offset: int
    last: FoundBatch | None
    bad: BadBytes | None


def check_log(storage: Storage, directory: str) -> CheckedLog:
    """Every batch of the metadata log, with its checksum, up to the first that is not as it was written: whole, right
    behind the one before it, in an epoch that does not go back."""
    names = log_files(storage, directory)
    start = (offset_of(names[0]) or 0) if names else 0
    checked = CheckedLog(start, start, None, None)
    for number, name in enumerate(names):
        path = f"{directory}/{name}"
        with closing(storage.open(path)) as file:
            checked, good_bytes, why = _check_file(checked, path, file)
            if good_bytes == file.size and not why:
                continue
        data = storage.read_all(path)
        after = good_batches(path, data, good_bytes + 1 if data else 0)
        for following in names[number + 1 :]:
            after += good_batches(f"{directory}/{following}", storage.read_all(f"{directory}/{following}"))
        return checked._replace(bad=BadBytes(path, good_bytes, len(data) - good_bytes, why, tuple(after)))
    return checked


def log_files(storage: Storage, directory: str) -> list[str]:
    names = storage.list_directory(directory) if storage.exists(directory) else []
    return sorted(name for name in names if name.endswith(LOG_SUFFIX) and offset_of(name) is not None)


def good_batches(path: str, data: bytes, position: int = 0) -> list[FoundBatch]:
    """Whole batches from `position` on, wherever they begin."""
    found: list[FoundBatch] = []
    while (at := data.find(MAGIC, position + MAGIC_AT)) >= 0:
        start = at - MAGIC_AT
        headers, size_bytes = kernel.scan(data, start, len(data), True)
        position = start + (size_bytes or 1)
        for header in headers:
            found.append(FoundBatch(path, start, header))
            start += header.size_bytes
    return found


def _check_file(before: CheckedLog, path: str, file: File) -> tuple[CheckedLog, int, str]:
    """What is known after one more file, how many of its bytes are good, and what is wrong with the next."""
    end, last, position = before.end_offset, before.last, 0
    epoch = last.header.leader_epoch if last else NO_LEADER_EPOCH
    begins = offset_of(path.rpartition("/")[2])
    if begins != end:
        return before, 0, f"it begins at offset {begins}, and {end} was expected"
    why = ""
    for header in (header for step in scan_batches(file, 0, file.size, verify_crc=True) for header in step.headers):
        if header.base_offset != end:
            why = f"a batch has offset {header.base_offset}, and {end} was expected"
            break
        if header.leader_epoch < epoch:
            why = f"a batch has epoch {header.leader_epoch}, after {epoch}"
            break
        last = FoundBatch(path, position, header)
        position += header.size_bytes
        end, epoch = header.next_offset, header.leader_epoch
    if position < file.size:
        why = why or "a batch is cut off, or its checksum is wrong"
    return before._replace(end_offset=end, last=last), position, why


class _Claim(NamedTuple):
    """Something that says up to where the metadata was durable."""

    end_offset: int
    source: str


def check_whole(
    log: CheckedLog,
    directory: str,
    *,
    noted: DurableEnd | None,
    snapshots: Sequence[SnapshotId],
    began: int,
    was_stopped_cleanly: bool,
) -> None:
    """Raise DamagedMetadata unless all that was durable is there. `began` is where the latest epoch began, by the word
    of `leader-epoch-checkpoint`. That and the clean stop count only where the end was never noted: the one has no
    checksum, and the mark of the other still stands while a start writes its first records."""
    bad = log.bad
    if bad is not None and bad.good_after:
        raise DamagedMetadata(
            f"{bad.path} is damaged at byte {bad.position} ({bad.why}), and {len(bad.good_after)} whole batches of "
            "metadata follow: that is not a torn write"
        )
    if bad is not None and noted is None and was_stopped_cleanly:
        raise DamagedMetadata(
            f"{bad.path} is damaged at byte {bad.position} ({bad.why}), though it was stopped cleanly"
        )
    known = [_Claim(snapshot.end_offset, f"{directory}/{snapshot.file_name}") for snapshot in snapshots]
    if noted is not None:
        known.append(_Claim(noted.end_offset, END_OFFSET_FILE))
    else:
        known.append(_Claim(began, f"{directory}/leader-epoch-checkpoint"))
    furthest = max(known)
    if log.end_offset < furthest.end_offset:
        where = f"{bad.path} is damaged at byte {bad.position} ({bad.why})" if bad else f"{directory} lacks its end"
        raise DamagedMetadata(
            f"{where}: the metadata ends at offset {log.end_offset}, and {furthest.source} says that it was durable "
            f"up to {furthest.end_offset}"
        )
    last = log.last
    if noted is None or last is None or noted.end_offset != log.end_offset:
        return
    if noted.epoch != last.header.leader_epoch:
        raise DamagedMetadata(
            f"{last.path} is damaged at byte {last.position}: its last batch has epoch {last.header.leader_epoch}, and "
            f"{END_OFFSET_FILE} says {noted.epoch}"
        )
