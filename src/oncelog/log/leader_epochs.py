"""Which leader epoch began at which offset: Kafka's `leader-epoch-checkpoint`.

Owns the list of (epoch, start offset) of one partition, in memory and in its text file. A follower that asks where an
epoch ended learns from it how far its log agrees with ours. It never reads the log; who appends or truncates tells it.

    0                 version
    2                 number of entries
    0 0               epoch, start offset
    3 1042
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from oncelog.log.checkpoints import MAX_OFFSET, CorruptCheckpoint, decode_lines, encode_lines
from oncelog.log.storage import Storage, replace_file
from oncelog.named_tuple import NamedTuple
from oncelog.printable import excerpt
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET

FILE_NAME: Final = "leader-epoch-checkpoint"
MAX_EPOCH: Final = 2**31 - 1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """Up to `end_offset` the log holds nothing newer than `epoch`."""

    epoch: int
    end_offset: int


UNDEFINED: Final = EpochEndOffset(NO_LEADER_EPOCH, NO_OFFSET)


def cut_start(entries: Sequence[EpochEntry], start_offset: int) -> list[EpochEntry]:
    """Without the epochs that ended at or before `start_offset`; the one in force there begins there."""
    following = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
    if not following:
        return list(entries)
    return [EpochEntry(entries[following - 1].epoch, start_offset), *entries[following:]]


def cut_end(entries: Iterable[EpochEntry], end_offset: int) -> list[EpochEntry]:
    """Without the epochs that began at or after `end_offset`."""
    return [entry for entry in entries if entry.start_offset < end_offset]


class LeaderEpochCache:
    """Epochs and start offsets, both strictly increasing.

    A new epoch reaches the file with `write_out`, which comes before a flush or a manifest that tells of it; until then
    recovery finds it in the batches themselves. So neither a partition's first record nor its opening after a kill pays
    for a file. Syncing is the log's to do with its next flush.
    """

    __slots__ = ("_entries", "_is_written", "_latest_epoch", "_storage", "path")

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self.path = f"{directory}/{FILE_NAME}"
        self._entries: tuple[EpochEntry, ...] = ()
        self._latest_epoch = NO_LEADER_EPOCH
        self._is_written = True

    def load(self) -> bool:
        """Read the file; whether there was one. Raise CorruptCheckpoint if it cannot be believed."""
        try:
            data = self._storage.read_all(self.path)
        except FileNotFoundError:
            return False
        entries = [self._decode(line) for line in decode_lines(data, self.path)]
        if any(
            earlier.epoch >= later.epoch or earlier.start_offset > later.start_offset
            for earlier, later in pairwise(entries)
        ):
            raise CorruptCheckpoint(f"{self.path}: its epochs or offsets are not in order")
        self._set(entries)
        return True

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def latest_epoch(self) -> int:
        return self._latest_epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, dropping whatever contradicts it; `write_out` tells the file."""
        if epoch not in (self._latest_epoch, NO_LEADER_EPOCH):
            self._set(self._with(epoch, start_offset))
            self._is_written = False

    def write_out(self) -> bool:
        """Bring the file up to date, in the page cache; whether it was not."""
        if self._is_written:
            return False
        self._write(self._entries)
        return True

    def take(self, entries: Iterable[EpochEntry]) -> None:
        """Make these the only ones, as the batches say; `write_out` tells the file."""
        entries = tuple(entries)
        if entries != self._entries:
            self._set(entries)
            self._is_written = False

    def restore(self, entries: Iterable[EpochEntry]) -> None:
        """The same, where the file cannot be believed: it is written at once."""
        self.take(entries)
        self.write_out()

    def _with(self, epoch: int, start_offset: int) -> list[EpochEntry]:
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        return [*kept, EpochEntry(epoch, start_offset)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where `epoch` ended: at the start of the next one, or at the end of the log for the current one."""
        if epoch == NO_LEADER_EPOCH:
            return UNDEFINED
        if epoch == self._latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if following == len(self._entries):
            return UNDEFINED
        end_offset = self._entries[following].start_offset
        return EpochEndOffset(self._entries[following - 1].epoch if following else epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch under which `offset` was written; -1 if not known."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        if self._entries and self._entries[-1].start_offset >= end_offset:
            self._write(cut_end(self._entries, end_offset))

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs that ended at or before `start_offset`; the one in force there now begins there. Whether the
        file was written: not only for the latter, which opening the log finds by itself."""
        cut = cut_start(self._entries, start_offset)
        if len(cut) == len(self._entries):
            self._set(cut)
            return False
        self._write(cut)
        return True

    def clear(self) -> None:
        if self._entries:
            self._write([])

    def _write(self, entries: Sequence[EpochEntry]) -> None:
        lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
        replace_file(self._storage, self.path, encode_lines(lines), durable=False)
        self._set(entries)
        self._is_written = True

    def _set(self, entries: Sequence[EpochEntry]) -> None:
        self._entries = tuple(entries)
        self._latest_epoch = entries[-1].epoch if entries else NO_LEADER_EPOCH

    def _decode(self, line: str) -> EpochEntry:
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError:
            epoch = start_offset = NO_OFFSET
        if not (0 <= epoch <= MAX_EPOCH and 0 <= start_offset <= MAX_OFFSET):
            raise CorruptCheckpoint(f"{self.path}: {excerpt(line)} is not an epoch and an offset")
        return EpochEntry(epoch, start_offset)
