"""Reads every batch of every partition: what no start does, since it takes as long as the disk needs.

Owns the questions that only a whole reading answers: the checksum of each batch, and that offsets and epochs, which lie
outside of it, go on where the batch before them ended. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.log.batch_scan import scan_batches
from oncelog.log.folders import partition_of
from oncelog.log.inspection import Finding, Severity
from oncelog.log.segment_files import LOG_SUFFIX, offset_of
from oncelog.log.storage import Storage
from oncelog.records.batch import BatchHeader

NO_EPOCH = -1


def verify_partitions(storage: Storage, data_directory: str) -> Iterator[Finding]:
    for name in storage.list_directory(data_directory):
        if partition_of(name) is not None:
            yield from _verify(storage, f"{data_directory}/{name}")


def _verify(storage: Storage, directory: str) -> Iterator[Finding]:
    found = [(offset_of(name), name) for name in storage.list_directory(directory) if name.endswith(LOG_SUFFIX)]
    segments = sorted((offset, name) for offset, name in found if offset is not None)
    ends = [offset for offset, _ in segments[1:]]
    epoch = NO_EPOCH
    for number, (base_offset, name) in enumerate(segments):
        end_offset = ends[number] if number < len(ends) else None
        problem, epoch = _first_fault(storage, f"{directory}/{name}", base_offset, end_offset, epoch)
        if problem is not None and not (end_offset is None and problem.startswith(TORN)):
            yield Finding(
                f"{directory}/{name}",
                problem,
                "handed out as it is, unless a start finds it: clients verify checksums, and not offsets",
                Severity.LOSS,
                "restore the partition's folder from a copy",
            )


TORN = "the checksum is wrong, or the batch cut off"
"""At the very end of a log this may be a torn write, of which the next start knows more."""


def _first_fault(
    storage: Storage, path: str, base_offset: int, end_offset: int | None, epoch: int
) -> tuple[str | None, int]:
    """What is wrong with the first bad batch of a segment, and the epoch of the last good one."""
    file = storage.open(path)
    try:
        next_offset, position = base_offset, 0
        for scanned in scan_batches(file, 0, file.size, verify_crc=True):
            for header in scanned.headers:
                fault = _fault(header, next_offset, end_offset, epoch)
                if fault is not None:
                    return f"the batch at byte {position}: {fault}", epoch
                next_offset, epoch = header.next_offset, header.leader_epoch
                position += header.size_bytes
        return (f"{TORN} at byte {position}" if position < file.size else None), epoch
    finally:
        file.close()


def _fault(header: BatchHeader, next_offset: int, end_offset: int | None, epoch: int) -> str | None:
    """Compaction leaves gaps between offsets; they never go back, nor into the next segment."""
    if header.base_offset < next_offset or (end_offset is not None and header.next_offset > end_offset):
        return f"its offset is {header.base_offset}, out of order"
    if header.leader_epoch < epoch:
        return f"its epoch is {header.leader_epoch}, after {epoch}"
    return None
