"""What became of the entries: facts, as the journal keeps them, and the state that they add up to.

A fact speaks of the entries `first` up to `first + count` of one partition. State changes only by applying a fact, so
what a restart reads from the journal is what the process knew, and a journal begins with the facts that sum up the
one before it.

    Numbered   these entries form one batch with this producer id, epoch and base sequence; it may be stored
    Settled    stored, or given up and reported: they will never be sent again
    Refused    settled, and certainly not stored: batches behind them, numbered on, are not and will not be either
    Voided     whatever was said of them is void, they are as good as new: no broker has stored them
    Doubted    they may be stored under numbers that nobody knows any more
    Placed     not of entries: at this offset of this partition lies a position that was committed (`positions`)

and of the files beside the journal, so that one which is cut, gone or older than it should be is noticed:

    Reached    this file of records has frames up to here, at least
    Removed    this file of records is not needed any more
    Belongs    transactional.json was written, with this life; or is not there any more

**Only one producer identity is open at a time.** A producer takes a new id or epoch only when no batch anywhere is of
unknown fate. So a batch numbered under another identity says of all earlier ones that are still open: not stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.client.spool.ranges import EntryRanges
from oncelog.types import TopicPartition, advance_sequence

_FIXED = struct.Struct(">BiqqH")  # kind, partition, first entry, count, topic length
_NUMBERS = struct.Struct(">qhiq")  # producer id, epoch, base sequence, wall clock


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Numbered:
    partition: TopicPartition
    first: int
    count: int
    identity: Identity
    base_sequence: int
    numbered_ms: int  # wall clock: how long ago it was is asked by another process

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def last_sequence(self) -> int:
        return advance_sequence(self.base_sequence, self.count - 1)


@dataclass(frozen=True, slots=True)
class Settled:
    partition: TopicPartition
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    partition: TopicPartition
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Voided:
    partition: TopicPartition
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Doubted:
    partition: TopicPartition
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Placed:
    partition: TopicPartition
    first: int  # the offset
    count: int = 1


NO_PARTITION = TopicPartition("", 0)
"""In facts that speak of files."""
NO_LIFE = -1


@dataclass(frozen=True, slots=True)
class Reached:
    partition: TopicPartition
    first: int  # the file's number
    count: int  # bytes


@dataclass(frozen=True, slots=True)
class Removed:
    partition: TopicPartition
    first: int  # the file's number
    count: int = 0


@dataclass(frozen=True, slots=True)
class Belongs:
    partition: TopicPartition
    first: int  # the life
    count: int = 1


Fact = Numbered | Settled | Refused | Voided | Doubted | Placed | Reached | Removed | Belongs
_UNNUMBERED = (Settled, Refused, Voided, Doubted, Placed, Reached, Removed, Belongs)
_KINDS = (Numbered, *_UNNUMBERED)


def encode_fact(fact: Fact) -> bytes:
    topic = fact.partition.topic.encode()
    fixed = _FIXED.pack(_KINDS.index(type(fact)), fact.partition.partition, fact.first, fact.count, len(topic))
    if isinstance(fact, Numbered):
        return fixed + topic + _NUMBERS.pack(*fact.identity, fact.base_sequence, fact.numbered_ms)
    return fixed + topic


def decode_fact(body: memoryview) -> Fact:
    kind, partition, first, count, topic_length = _FIXED.unpack_from(body)
    end = _FIXED.size + topic_length
    place = TopicPartition(str(body[_FIXED.size : end], "utf-8"), partition)
    if kind:
        return _UNNUMBERED[kind - 1](place, first, count)
    producer_id, epoch, base_sequence, numbered_ms = _NUMBERS.unpack_from(body, end)
    return Numbered(place, first, count, Identity(producer_id, epoch), base_sequence, numbered_ms)


@dataclass(slots=True)
class PartitionFates:
    settled: EntryRanges = field(default_factory=EntryRanges)
    doubted: EntryRanges = field(default_factory=EntryRanges)
    numbered: list[Numbered] = field(default_factory=list)
    """Open batches in the order of their entries."""

    @property
    def end(self) -> int:
        """One above the highest entry that a fact speaks of."""
        return max(self.settled.end, self.doubted.end, self.numbered[-1].end if self.numbered else 0)

    def settle(self, first: int, end: int) -> None:
        self.settled.add(first, end)
        self.doubted.remove(first, end)
        self.numbered = [one for one in self.numbered if not self.settled.covers(one.first, one.end)]

    def void(self, first: int, end: int) -> None:
        self.numbered = [batch for batch in self.numbered if batch.end <= first or end <= batch.first]
        self.doubted.remove(first, end)


class Fates:
    """The state of all partitions."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionFates] = {}
        self.identity: Identity | None = None
        self.placed: Placed | None = None
        self.files: dict[int, int] = {}
        """The files of records that must be there, and up to where they have frames at least."""
        self.last_file = 0
        """The highest number that a file of records had."""
        self.life = NO_LIFE
        """Of transactional.json, which must be there unless this is `NO_LIFE`."""

    def of(self, partition: TopicPartition) -> PartitionFates:
        fates = self.partitions.get(partition)
        if fates is None:
            fates = self.partitions[partition] = PartitionFates()
        return fates

    def apply(self, fact: Fact) -> None:
        if isinstance(fact, Placed | Reached | Removed | Belongs):
            self._apply_to_files(fact)
            return
        fates = self.of(fact.partition)
        first, end = fact.first, fact.first + fact.count
        match fact:
            case Numbered():
                self._use(fact.identity)
                fates.void(first, end)
                fates.numbered.append(fact)
                fates.numbered.sort(key=_first)
            case Settled():
                fates.settle(first, end)
            case Refused():
                fates.settle(first, end)
                fates.numbered = [one for one in fates.numbered if one.first < first]
            case Voided():
                fates.void(first, end)
            case Doubted():
                fates.void(first, end)
                fates.doubted.add(first, end)

    def _apply_to_files(self, fact: Placed | Reached | Removed | Belongs) -> None:
        match fact:
            case Placed():
                self.placed = fact
            case Reached(_, number, end):
                self.files[number] = max(end, self.files.get(number, 0))
                self.last_file = max(self.last_file, number)
            case Removed(_, number):
                self.files.pop(number, None)
                self.last_file = max(self.last_file, number)
            case Belongs(_, life):
                self.life = life

    def _use(self, identity: Identity) -> None:
        if identity == self.identity:
            return
        self.identity = identity
        for fates in self.partitions.values():
            fates.numbered = [batch for batch in fates.numbered if batch.identity == identity]

    def summary(self) -> Iterator[Fact]:
        """Facts that lead to this state from nothing."""
        if self.placed is not None:
            yield self.placed
        if self.life != NO_LIFE:
            yield Belongs(NO_PARTITION, self.life)
        if self.last_file and self.last_file not in self.files:
            yield Removed(NO_PARTITION, self.last_file)
        for number, size in self.files.items():
            yield Reached(NO_PARTITION, number, size)
        for partition, fates in self.partitions.items():
            for first, end in fates.settled:
                yield Settled(partition, first, end - first)
            for first, end in fates.doubted:
                yield Doubted(partition, first, end - first)
            yield from fates.numbered


def _first(batch: Numbered) -> int:
    return batch.first


def fates_of(facts: Iterable[Fact]) -> Fates:
    fates = Fates()
    for fact in facts:
        fates.apply(fact)
    return fates
