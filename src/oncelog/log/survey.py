"""What of a partition's segments is whole, and which offsets are not there any more. Reads every batch; only reads.

Owns finding the next whole batch behind damage, and counting what is lost: by offsets, which is how clients know them.
What is asked of a batch is `verification`'s. A lost range in a compacted log counts also offsets that compaction took.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from oncelog.errors import CorruptMessage
from oncelog.log.batch_epochs import BatchEpochs, contradiction, corrected, lacks_beginning, with_later
from oncelog.log.batch_scan import SCAN_BYTES, scan_batches
from oncelog.log.checkpoints import MAX_OFFSET, CorruptCheckpoint
from oncelog.log.leader_epochs import EpochEntry, LeaderEpochCache
from oncelog.log.manifest import NO_FOREIGN_EPOCH, UNKNOWN, CorruptManifest, Manifest, read_manifest
from oncelog.log.segment_files import LOG_SUFFIX, file_path, offset_of
from oncelog.log.storage import File, Storage
from oncelog.log.verification import BatchOrder, check_batches
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, MAGIC, BatchHeader

MAGIC_AT: Final = 16
"""Where a batch has its magic: how the next one is looked for behind damage."""


class OffsetRange(NamedTuple):
    first_offset: int
    last_offset: int | None
    """Inclusive; None: nothing tells how far it went."""

    def __str__(self) -> str:
        if self.last_offset is None:
            return f"offsets from {self.first_offset} on"
        count = self.last_offset - self.first_offset + 1
        if count == 1:
            return f"offset {self.first_offset} (1 record)"
        return f"offsets {self.first_offset} to {self.last_offset} (up to {count} records)"


class BatchReader(NamedTuple):
    """Who reads all of a partition at a start, and serves nothing of it unless every batch can be understood."""

    check: Callable[[BatchHeader, memoryview], None]
    """Of a batch whose checksum is right. Raises CorruptMessage."""
    consequence: str
    """Of a batch that cannot be understood, or that is damaged."""
    cost: str
    """What is lost with such a batch."""


class BadBytes(NamedTuple):
    """Bytes of a segment that are no batch which belongs there."""

    position: int
    end_position: int
    problem: str
    lost: OffsetRange


class SegmentSurvey(NamedTuple):
    base_offset: int
    size_bytes: int
    good: tuple[tuple[int, int], ...]
    """From which byte to which batches are whole and in order."""
    bad: tuple[BadBytes, ...]
    next_offset: int
    """After the last good batch."""

    @property
    def good_bytes(self) -> int:
        return sum(end - start for start, end in self.good)

    @property
    def seen_offset(self) -> int:
        """After the last batch whose offsets are known, good or bad."""
        seen = (each.lost.last_offset + 1 for each in self.bad if each.lost.last_offset is not None)
        return max(self.next_offset, *seen, 0)

    @property
    def has_gap(self) -> bool:
        """Whether something good lies behind something bad."""
        return bool(self.bad and self.good) and self.good[-1][0] > self.bad[0].position


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    manifest: Manifest | None
    segments: tuple[SegmentSurvey, ...]
    lost: tuple[OffsetRange, ...]
    goes_on_at: int
    """The first offset that was certainly not used."""
    start_offset: int
    epochs: tuple[EpochEntry, ...]
    """The leader epochs, as the batches say."""

    @property
    def end_offset(self) -> int:
        """After the last batch that is left."""
        return self.segments[-1].next_offset if self.segments else 0


MAX_NAMED: Final = 10
"""Ranges that are named one by one: there may be as many as batches."""


def named(lost: Sequence[OffsetRange]) -> list[str]:
    more = [f"{len(lost) - MAX_NAMED} more ranges behind them"] if len(lost) > MAX_NAMED else []
    return [*map(str, lost[:MAX_NAMED]), *more]


def in_words(lost: Sequence[OffsetRange]) -> str:
    return ", ".join(named(lost)) or "offsets that nothing tells of any more"


def survey_partition(
    storage: Storage,
    directory: str,
    *,
    recovery_point: int,
    start_offset: int,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    epochs: tuple[EpochEntry, ...] | None = None,
    reader: BatchReader | None = None,
) -> PartitionSurvey:
    """`recovery_point` and `start_offset` are what the checkpoints of the data folder say of it, 0 if nothing;
    `foreign_epoch` is that of `Manifest.is_stale`; `epochs` are its leader epochs, if they are known for sure. What
    `reader` cannot understand is as bad as a wrong checksum."""
    try:
        manifest = read_manifest(storage, directory)
    except CorruptManifest:
        manifest = None
    if manifest is not None and manifest.is_stale(foreign_epoch):
        manifest = None
    bases = base_offsets(storage, directory)
    if epochs is None:
        epochs = _epochs(storage, directory, manifest, bases)
    segments = [
        _understood(file, survey_segment(file, base_offset, end_offset, epochs), reader)
        for file, base_offset, end_offset in _each_file(storage, directory, bases)
    ]
    promised = [recovery_point, start_offset]
    if manifest is not None:
        promised += [manifest.end_offset, manifest.flushed_below, manifest.log_start_offset]
        promised += [entry.base_offset for entry in manifest.segments]
    goes_on_at = max([segments[-1].seen_offset if segments else 0, *promised])
    first = manifest.log_start_offset if manifest is not None else start_offset
    if manifest is None and segments and start_offset > segments[-1].next_offset:
        first = segments[0].base_offset  # a start behind the end: the file that says so has no checksum
    lost = [*_lost_within(segments, manifest, goes_on_at), *_lost_between(bases, manifest, goes_on_at)]
    if not segments:
        lost.append(OffsetRange(first, goes_on_at - 1))
    return PartitionSurvey(manifest, tuple(segments), merged(lost, first), goes_on_at, first, epochs)


def _each_file(storage: Storage, directory: str, bases: Sequence[int]) -> Iterator[tuple[File, int, int | None]]:
    """Each segment's file, while it is looked at, with its first offset and that of the next one."""
    for base_offset, end_offset in zip_longest(bases, bases[1:]):
        file = storage.open(file_path(directory, base_offset, LOG_SUFFIX))
        try:
            yield file, base_offset, end_offset
        finally:
            file.close()


def base_offsets(storage: Storage, directory: str) -> list[int]:
    names = storage.list_directory(directory) if storage.exists(directory) else []
    return sorted(offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None)


# --- one segment ---


def survey_segment(
    file: File, base_offset: int, end_offset: int | None, epochs: Sequence[EpochEntry] = ()
) -> SegmentSurvey:
    """`end_offset` is where the next segment begins; None: this is the last one."""
    good: list[tuple[int, int]] = []
    bad: list[BadBytes] = []
    position, due = 0, base_offset
    while True:
        checked = check_batches(file, position, file.size, file.size, BatchOrder(epochs, due, end_offset))
        if checked.end_position > position:
            good.append((position, checked.end_position))
            assert checked.next_offset is not None, "it was known where it began"
            due = checked.next_offset
        if checked.damage is None:
            return SegmentSurvey(base_offset, file.size, tuple(good), tuple(bad), due)
        damaged_at, problem = checked.damage
        found = _next_batch(file, damaged_at, due, end_offset)
        if bad and bad[-1].end_position == damaged_at:  # what was found behind damage did not hold
            damaged_at, _, problem, _ = bad.pop()
        if found is None:
            last = None if end_offset is None else end_offset - 1
            bad.append(BadBytes(damaged_at, file.size, problem, OffsetRange(due, last)))
            return SegmentSurvey(base_offset, file.size, tuple(good), tuple(bad), due)
        position, header = found
        bad.append(BadBytes(damaged_at, position, problem, OffsetRange(due, header.base_offset - 1)))


def _understood(file: File, segment: SegmentSurvey, reader: BatchReader | None) -> SegmentSurvey:
    """The same, with what the reader does not understand among the bad. Batches side by side count as one."""
    if reader is None:
        return segment
    good: list[tuple[int, int]] = []
    bad: list[BadBytes] = []
    next_offset = segment.base_offset
    for start, end in segment.good:
        for position, header, batch in _batches(file, start, end):
            end_position = position + header.size_bytes
            try:
                reader.check(header, batch)
            except CorruptMessage as error:
                lost = OffsetRange(header.base_offset, header.next_offset - 1)
                if bad and bad[-1].end_position == position:
                    position, _, problem, before = bad.pop()
                    bad.append(BadBytes(position, end_position, problem, OffsetRange(before[0], lost[1])))
                else:
                    bad.append(BadBytes(position, end_position, str(error), lost))
                continue
            next_offset = header.next_offset
            if good and good[-1][1] == position:
                position = good.pop()[0]
            good.append((position, end_position))
    every = sorted([*segment.bad, *bad], key=lambda each: each.position)
    return segment._replace(good=tuple(good), bad=tuple(every), next_offset=next_offset)


def _batches(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Of whole batches, each with its position; its bytes are overwritten by those of later ones."""
    for step in scan_batches(file, start, end, verify_crc=False):
        at = 0
        for header in step.headers:
            yield step.position + at, header, step.data[at : at + header.size_bytes]
            at += header.size_bytes


def _next_batch(file: File, position: int, due: int, end_offset: int | None) -> tuple[int, BatchHeader] | None:
    """The first whole batch behind the bad one at `position`, of offsets that can follow. First where the bad one says
    that it ends: a value may hold what looks like a batch."""
    claimed = _parsed(file.read(position, HEADER_SIZE))
    if claimed is not None and claimed.size_bytes <= file.size - position:
        behind = position + claimed.size_bytes
        header = _whole_batch(file, behind, due, end_offset)
        if header is not None or behind == file.size:
            return (behind, header) if header is not None else None
    position += 1
    while position + HEADER_SIZE <= file.size:
        data = file.read(position, SCAN_BYTES)
        at = MAGIC_AT
        while (at := data.find(MAGIC, at)) >= 0:
            start = position + at - MAGIC_AT
            header = _whole_batch(file, start, due, end_offset)
            if header is not None:
                return start, header
            at += 1
        position += max(len(data) - MAGIC_AT, 1)
    return None


def _whole_batch(file: File, position: int, due: int, end_offset: int | None) -> BatchHeader | None:
    header = _parsed(file.read(position, HEADER_SIZE))
    if header is None or header.magic != MAGIC or header.size_bytes > file.size - position:
        return None
    if header.base_offset < due or header.next_offset > (MAX_OFFSET if end_offset is None else end_offset):
        return None
    headers, _ = kernel.scan(file.read(position, header.size_bytes), 0, header.size_bytes, True)
    return header if headers else None


def _parsed(data: bytes) -> BatchHeader | None:
    try:
        return kernel.parse_header(data)
    except CorruptMessage:
        return None


# --- what is lost ---


def _lost_within(segments: Sequence[SegmentSurvey], manifest: Manifest | None, goes_on_at: int) -> list[OffsetRange]:
    lost = []
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        end_offset = goes_on_at if is_last else segments[number + 1].base_offset
        for bad in segment.bad:
            known_end = None if end_offset <= bad.lost.first_offset else end_offset - 1
            last_offset = known_end if bad.lost.last_offset is None else bad.lost.last_offset
            lost.append(OffsetRange(bad.lost.first_offset, last_offset))
        entry = manifest.entry(segment.base_offset) if manifest is not None else None
        was_longer = entry is not None and entry.size_bytes != UNKNOWN and entry.size_bytes > segment.size_bytes
        if is_last or was_longer:
            lost.append(OffsetRange(segment.next_offset, end_offset - 1))
    return lost


def _lost_between(bases: Sequence[int], manifest: Manifest | None, goes_on_at: int) -> list[OffsetRange]:
    """The offsets of segments that are gone."""
    named = [entry.base_offset for entry in manifest.segments] if manifest is not None else []
    missing = sorted(set(named).difference(bases))
    ends = sorted({*named, *bases, goes_on_at})
    return [OffsetRange(base, next((end for end in ends if end > base), base) - 1) for base in missing]


def merged(ranges: Iterable[OffsetRange], start_offset: int = 0) -> tuple[OffsetRange, ...]:
    """In order, without those that are empty or lie before the start of the log."""
    joined: list[OffsetRange] = []
    for first, last in sorted(ranges, key=lambda each: each.first_offset):
        first = max(first, start_offset)
        if last is not None and last < first:
            continue
        before = joined[-1] if joined else None
        if before is not None and (before.last_offset is None or first <= before.last_offset + 1):
            end = None if last is None or before.last_offset is None else max(last, before.last_offset)
            joined[-1] = OffsetRange(before.first_offset, end)
        else:
            joined.append(OffsetRange(first, last))
    return tuple(joined)


def leader_epochs(storage: Storage, directory: str) -> tuple[EpochEntry, ...]:
    """Those of a partition, as its batches say."""
    try:
        manifest = read_manifest(storage, directory)
    except CorruptManifest:
        manifest = None
    return _epochs(storage, directory, manifest, base_offsets(storage, directory))


def _epochs(
    storage: Storage, directory: str, manifest: Manifest | None, bases: Sequence[int]
) -> tuple[EpochEntry, ...]:
    noted = _noted_epochs(storage, directory, manifest)
    told = BatchEpochs(noted, manifest.knows_epochs_below if manifest is not None else 0)
    for file, base_offset, end_offset in _each_file(storage, directory, bases):
        for start, end in survey_segment(file, base_offset, end_offset).good:
            for scanned in scan_batches(file, start, end, verify_crc=False):
                told.take(scanned.headers)
    entries, start_offset = with_later(noted, told.runs), manifest.log_start_offset if manifest is not None else 0
    is_right = contradiction(entries, told.runs, start_offset) is None
    if is_right and not lacks_beginning(entries, told.runs, start_offset):
        return entries
    return corrected(entries, told.runs, start_offset)


def _noted_epochs(storage: Storage, directory: str, manifest: Manifest | None) -> tuple[EpochEntry, ...]:
    if manifest is not None and manifest.is_closed:
        return manifest.epochs
    cache = LeaderEpochCache(storage, directory)
    with contextlib.suppress(CorruptCheckpoint):
        cache.load()
    return cache.entries if manifest is None or manifest.fits(cache.entries) else manifest.epochs
