"""Two ways to walk the batches of a segment's file: reading everything, or hopping from header to header.

Owns the reading pattern only. `scan_batches` is for recovery and replay: large reads, whole batches, checksums if
asked. `hop_batches` is for finding one batch near a known position: it reads headers and skips what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.errors import CorruptMessage
from oncelog.log.storage import File
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, MAGIC, BatchHeader

SCAN_BYTES: Final = 1024 * 1024
"""One read of a scan; small enough that the checksum finds the bytes still in the processor's cache."""

HOP_BYTES: Final = 4096


class ScannedBatches(NamedTuple):
    """Consecutive good batches. `data` begins with the first one and is overwritten by the next step of the scan."""

    position: int
    headers: list[BatchHeader]
    data: memoryview

    @property
    def end_position(self) -> int:
        return self.position + len(self.data)


def scan_batches(file: File, start: int, end: int, *, verify_crc: bool) -> Iterator[ScannedBatches]:
    """Every batch in [start, end) until the first that is cut off or bad; the end of the last step says where."""
    buffer = bytearray(min(SCAN_BYTES, max(end - start, 0)))
    position = start
    while position < end:
        view = memoryview(buffer)[: min(len(buffer), end - position)]
        read = file.read_into(position, view)
        headers, good_bytes = kernel.scan(view, 0, read, verify_crc)
        if headers:
            yield ScannedBatches(position, headers, view[:good_bytes])
            position += good_bytes
            continue
        size = _claimed_size(view[:read])
        if size is None or size <= read or size > end - position:
            return
        buffer = bytearray(size)


def _claimed_size(data: memoryview) -> int | None:
    try:
        return kernel.parse_header(data).size_bytes
    except CorruptMessage:
        return None


def hop_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of every batch from `position` on; raise CorruptMessage where no batch begins."""
    while position < end:
        data = file.read(position, min(HOP_BYTES, end - position))
        at = 0
        while at == 0 or at + HEADER_SIZE <= len(data):
            header = kernel.parse_header(data, at)
            if header.magic != MAGIC or header.size_bytes > end - position - at:
                raise CorruptMessage(f"no record batch of format {MAGIC} at position {position + at} of {file!r}")
            yield position + at, header
            at += header.size_bytes
        position += at
