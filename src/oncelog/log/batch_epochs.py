"""What the batches of a log say of its leader epochs, and whether what was noted of them is true.

`leader-epoch-checkpoint` has no checksum, and whoever reads is refused a batch of another epoch than it says: a wrong
line would make good records unreadable. So it is a hint, compared with the batches whenever a log is opened. Where all
batches are read anyway they are asked; elsewhere those beside each place where an epoch is said to begin, the first and
the last: epochs only grow, so what these agree to is true of all between them.

The epoch of a batch lies outside of its checksum. One batch alone may therefore be the wrong one of the two: it is not
believed against the next one, nor against a manifest that knew its epoch when it was written.

Owns that judgement. Changes no file.

Kafka's name: UnifiedLog.reconstructLeaderEpochCache, roughly; Kafka never compares.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from oncelog.log.batch_scan import scan_batches
from oncelog.log.checkpoints import MAX_OFFSET
from oncelog.log.leader_epochs import EpochEntry, cut_start
from oncelog.log.segment import Segment
from oncelog.named_tuple import NamedTuple
from oncelog.records.batch import BatchHeader
from oncelog.types import NO_LEADER_EPOCH


class EpochRun(NamedTuple):
    """Batches of one epoch, with none of another between them. Both offsets are within."""

    epoch: int
    first_offset: int
    last_offset: int


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> int:
    """The epoch that these entries give an offset; -1 if none."""
    following = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
    return entries[following - 1].epoch if following else NO_LEADER_EPOCH


class BatchEpochs:
    """Takes in the batches of a log in their order. `known` is what was noted of their epochs, and `sure_below` the
    offset below which a file with a checksum says the same."""

    __slots__ = ("_known", "_lone", "_runs", "_sure_below")

    def __init__(self, known: Sequence[EpochEntry] = (), sure_below: int = 0) -> None:
        self._known = known
        self._sure_below = sure_below
        self._runs: list[EpochRun] = []
        self._lone: EpochRun | None = None  # the first batch of a newer epoch, while it is the only one

    def take(self, headers: Sequence[BatchHeader]) -> None:
        if not headers:
            return
        runs, last = self._runs, headers[-1]
        if runs and self._lone is None and headers[0].leader_epoch == last.leader_epoch == runs[-1].epoch:
            runs[-1] = runs[-1]._replace(last_offset=last.last_offset)
            return
        for header in headers:
            if header.leader_epoch != NO_LEADER_EPOCH:
                self._take(EpochRun(header.leader_epoch, header.base_offset, header.last_offset))

    @property
    def runs(self) -> tuple[EpochRun, ...]:
        """What the batches say so far."""
        lone = self._lone
        return tuple(self._runs) if lone is None or self._is_denied(lone) else (*self._runs, lone)

    def _take(self, batch: EpochRun) -> None:
        lone = self._lone
        if lone is not None:
            if batch.epoch < lone.epoch:
                batch, lone = self._decide(lone, batch), None
            elif batch.epoch == lone.epoch or not self._is_denied(lone):
                self._runs.append(lone)
            self._lone = None
        latest = self._runs[-1].epoch if self._runs else NO_LEADER_EPOCH
        if batch.epoch == latest:
            self._runs[-1] = self._runs[-1]._replace(last_offset=batch.last_offset)
        elif batch.epoch > latest:
            self._lone = batch
        # else its epoch went back: whoever reads it is told

    def _decide(self, lone: EpochRun, batch: EpochRun) -> EpochRun:
        """Which of two batches is right where the second has an older epoch."""
        noted = epoch_at(self._known, lone.first_offset)
        latest = self._runs[-1].epoch if self._runs else NO_LEADER_EPOCH
        if noted == lone.epoch or batch.epoch < latest:
            return lone
        return batch._replace(first_offset=lone.first_offset) if noted == batch.epoch else batch

    def _is_denied(self, lone: EpochRun) -> bool:
        is_sure = lone.first_offset < self._sure_below
        return is_sure and epoch_at(self._known, lone.first_offset) != lone.epoch


# --- the judgement ---


def with_later(entries: Sequence[EpochEntry], runs: Iterable[EpochRun]) -> tuple[EpochEntry, ...]:
    """With the epochs that came after the last one noted: a note may be late."""
    all_of_them = list(entries)
    for run in runs:
        if not all_of_them or (all_of_them[-1].epoch < run.epoch and all_of_them[-1].start_offset < run.first_offset):
            all_of_them.append(EpochEntry(run.epoch, run.first_offset))
    return tuple(all_of_them)


def contradiction(entries: Sequence[EpochEntry], runs: Iterable[EpochRun], start_offset: int) -> str | None:
    """What is wrong with these entries, by the word of batches; None: nothing. The log starts at `start_offset`. What
    lies before the first entry is said to be no newer."""
    for run in runs:
        for offset in (run.first_offset, run.last_offset):
            offset = max(offset, start_offset)
            noted = epoch_at(entries, offset)
            is_older = noted == NO_LEADER_EPOCH and (not entries or run.epoch <= entries[0].epoch)
            if run.last_offset >= start_offset and noted != run.epoch and not is_older:
                said = noted if noted != NO_LEADER_EPOCH else entries[0].epoch
                return f"it has leader epoch {said} for offset {offset}, and the batch there has {run.epoch}"
    return None


def lacks_beginning(entries: Sequence[EpochEntry], runs: Iterable[EpochRun], start_offset: int) -> bool:
    """Whether the first entry begins after the first batch: the log may have started there once, and nobody has noted
    it. Nothing is wrong then."""
    first_offset = entries[0].start_offset if entries else MAX_OFFSET
    return any(run.last_offset >= start_offset and max(run.first_offset, start_offset) < first_offset for run in runs)


def corrected(entries: Sequence[EpochEntry], runs: Iterable[EpochRun], start_offset: int) -> tuple[EpochEntry, ...]:
    """The entries as the batches of a whole log say. Where compaction took the first batches of an epoch, the entry
    knows better where it began."""
    found: list[EpochEntry] = []
    before = NO_LEADER_EPOCH
    for run in runs:
        if run.last_offset < start_offset:
            continue
        first_offset = max(run.first_offset, start_offset)
        noted = (entry for entry in entries if entry.epoch == run.epoch and before < entry.start_offset <= first_offset)
        found.append(next(noted, EpochEntry(run.epoch, first_offset)))
        before = run.last_offset
    return tuple(cut_start(found, start_offset))


# --- in files ---


def witnesses(segments: Sequence[Segment], entries: Sequence[EpochEntry], start_offset: int) -> Iterator[EpochRun]:
    """Batches of sealed segments that contradict these entries if anything there does; of the last batch, see
    `last_batch`. An epoch 0 needs none for its beginning: it is the oldest."""
    segments = [segment for segment in segments if segment.size_bytes]
    places = [entry.start_offset for entry in entries if entry.start_offset > start_offset]
    if not entries or entries[0].epoch > 0 or entries[0].start_offset > start_offset:
        places.insert(0, start_offset + 1)
    for place in places:
        yield from (_alone(header) for header in _headers_around(segments, place))


def last_batch(segments: Sequence[Segment], end_offset: int) -> Iterator[EpochRun]:
    """Of segments that end before `end_offset`."""
    for header in _headers_around([segment for segment in segments if segment.size_bytes], end_offset):
        yield _alone(header)


def _alone(header: BatchHeader) -> EpochRun:
    return EpochRun(header.leader_epoch, header.base_offset, header.last_offset)


def _headers_around(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The last batch that begins before `offset`, and the first that does not, as far as they have an epoch."""
    holding = bisect_left(segments, offset, key=lambda segment: segment.base_offset) - 1
    for segment in segments[max(holding, 0) :]:
        found = segment.headers_around(offset)
        yield from (header for header in found if header.leader_epoch != NO_LEADER_EPOCH)
        if found and found[-1].base_offset >= offset:
            return


def read_epochs(segments: Sequence[Segment], known: Sequence[EpochEntry], sure_below: int) -> tuple[EpochRun, ...]:
    """What all batches say. A segment that begins in the epoch in which the next one begins need not be read."""
    told = BatchEpochs(known, sure_below)
    segments = [segment for segment in segments if segment.size_bytes]
    firsts = [segment.headers_around(segment.base_offset) for segment in segments]
    for number, segment in enumerate(segments):
        first, following = firsts[number], firsts[number + 1] if number + 1 < len(segments) else []
        if first and following and NO_LEADER_EPOCH < first[0].leader_epoch == following[0].leader_epoch:
            told.take(first)
            continue
        for scanned in scan_batches(segment.file(), 0, segment.size_bytes, verify_crc=False):
            told.take(scanned.headers)
    return told.runs
