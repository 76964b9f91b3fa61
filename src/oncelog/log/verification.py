"""Whether batches that lay on the disk are still what was written: their checksums, and what no checksum covers.

Owns the rule by which offsets and leader epochs follow each other within a segment, and the memory of which part of a
file this process has found good. The offset and the epoch of a batch lie outside of its CRC32C (Kafka's format), so a
flipped bit there shows only beside what is known from elsewhere: the batch before, the batch after, the index, the
leader epochs. Offsets only grow; compaction leaves gaps. A batch behind a gap is believed only if the next one does not
contradict it: without compaction this finds every wrong offset, with compaction all that do not stay within the gap.

Never changes a file, and decides nothing about whoever wanted to read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from oncelog.errors import CorruptMessage
from oncelog.log.batch_scan import scan_batches
from oncelog.log.checkpoints import MAX_OFFSET
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.storage import File
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, BatchHeader
from oncelog.types import NO_LEADER_EPOCH

MAX_COLD_BYTES: Final = 2 * 1024 * 1024
"""What one read verifies, unless one batch is larger: a millisecond, or eight if the batches are tiny. The reader gets
less, and comes again."""

NO_BATCH: Final = "no whole batch with the right checksum is there"


class DamagedBatch(CorruptMessage):
    """A batch at rest is not what was written. It is not handed out; what lies before and after it is."""


class Damage(NamedTuple):
    position: int
    problem: str


class Checked(NamedTuple):
    """Everything below `end_position` is good; `next_offset` is due there."""

    end_position: int
    next_offset: int | None
    damage: Damage | None = None


class BatchOrder:
    """Judges the batches of one segment, one after the other. `next_offset` is what is due; None: not known."""

    __slots__ = ("_end_offset", "_epoch", "_epochs", "_known_below", "_known_from", "next_offset")

    def __init__(self, epochs: Sequence[EpochEntry], next_offset: int | None, end_offset: int | None = None) -> None:
        self._epochs = epochs
        self._end_offset = MAX_OFFSET if end_offset is None else end_offset
        self._epoch = NO_LEADER_EPOCH
        self._known_from = self._known_below = 0  # the offsets for which `_epoch` is known to be the right one
        self.next_offset = next_offset

    def problem(self, header: BatchHeader) -> str | None:
        """What is wrong with the next batch; None: it is taken in."""
        base_offset = header.base_offset
        if self.next_offset is not None and base_offset < self.next_offset:
            return f"it has offset {base_offset}, where {self.next_offset} is due"
        if header.next_offset > self._end_offset:
            return f"it has offsets up to {header.next_offset - 1}, and the segment ends before {self._end_offset}"
        if header.leader_epoch != self._epoch or not self._known_from <= base_offset < self._known_below:
            problem = self._epoch_problem(base_offset, header.leader_epoch)
            if problem is not None:
                return problem
        self.next_offset = header.next_offset
        return None

    def _epoch_problem(self, offset: int, epoch: int) -> str | None:
        following = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset)
        if following == 0:  # before all that is known, or in a log without epochs: they only grow
            before, self._epoch = self._epoch, epoch
            return f"it has leader epoch {epoch}, after {before}" if epoch < before else None
        known = self._epochs[following - 1]
        if epoch not in (known.epoch, NO_LEADER_EPOCH):
            return f"it has leader epoch {epoch}, and offset {offset} was written in {known.epoch}"
        self._epoch, self._known_from = known.epoch, known.start_offset
        self._known_below = self._epochs[following].start_offset if following < len(self._epochs) else MAX_OFFSET
        return None


def check_batches(file: File, start: int, end: int, size_bytes: int, order: BatchOrder) -> Checked:
    """Read the batches of [start, end), of a segment of `size_bytes`, until the first that is bad or goes beyond."""
    position = start
    before_gap: Checked | None = None  # the last batch lies behind a gap: nothing has confirmed its offset yet
    for scanned in scan_batches(file, start, end, verify_crc=True):
        for header in scanned.headers:
            due = order.next_offset
            problem = order.problem(header)
            if problem is not None:
                if before_gap is not None and due is not None and header.base_offset < due:
                    return before_gap
                return Checked(position, due, Damage(position, problem))
            before_gap = None
            if header.base_offset != due:
                doubt = f"it has offset {header.base_offset}, and the next one does not follow"
                before_gap = Checked(position, due, Damage(position, doubt))
            position += header.size_bytes
    following = _header_at(file, position) if position < size_bytes else None
    if before_gap is not None and following is not None and following.base_offset < (order.next_offset or 0):
        return before_gap
    if position < end and not _goes_beyond(following, end - position, size_bytes - position):
        return Checked(position, order.next_offset, Damage(position, NO_BATCH))
    return Checked(position, order.next_offset)


def _header_at(file: File, position: int) -> BatchHeader | None:
    try:
        return kernel.parse_header(file.read(position, HEADER_SIZE))
    except CorruptMessage:
        return None


def _goes_beyond(header: BatchHeader | None, wanted_bytes: int, there_bytes: int) -> bool:
    return header is not None and wanted_bytes < header.size_bytes <= there_bytes


class VerifiedRange:
    """One stretch of a file that was found good. It grows with a reader who goes on; another one begins it anew."""

    __slots__ = ("end", "next_offset", "start")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.start = self.end = 0
        self.next_offset: int | None = None

    def add(self, start: int, checked: Checked) -> None:
        end = checked.end_position
        if end <= start:
            return
        if start > self.end or end < self.start or self.start == self.end:
            self.start, self.end, self.next_offset = start, end, checked.next_offset
            return
        self.start = min(self.start, start)
        if end > self.end:
            self.end, self.next_offset = end, checked.next_offset
