"""The audit itself: what was sent against what a topic holds. Pure.

`Audit.observe` is told every stored record in the order of its partition; `Audit.report` then says, per partition, how
many records were lost, stored twice, or stored behind a later one. What was sent comes from a `Ledger` if the sender
kept one (`acknowledged` is then the promise the log must have kept), and otherwise from the numbering: a hole in a
stream is a loss, while records lost at the end of a stream cannot be seen without a ledger. A loss is reported where
the stream begins: in the partition that holds the lowest of its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from oncelog.audit.ids import RecordId
from oncelog.audit.numbers import NumberSet
from oncelog.errors import OncelogError
from oncelog.types import NO_OFFSET, TopicPartition

MAX_STREAMS = 1_000_000
"""Streams an audit follows at once; a topic with more is audited key range by key range, or with fewer producers."""

MAX_EXAMPLES = 10
"""Findings that a partition's report quotes; the counts are complete."""

MAX_GAPS = 100
"""Ranges of missing numbers that a partition's report names; the counts are complete."""


class TooManyStreams(OncelogError):
    """The records name more streams than one audit follows."""


@dataclass(slots=True)
class LedgerStream:
    partition: TopicPartition
    sent: int = 0
    acknowledged: NumberSet = field(default_factory=NumberSet)
    offsets: dict[int, int] = field(default_factory=dict)


class Ledger:
    """What a sender handed over and what it was told, per stream."""

    def __init__(self) -> None:
        self.streams: dict[str, LedgerStream] = {}

    def sent(self, record_id: RecordId, partition: TopicPartition) -> None:
        self._stream(record_id, partition).sent += 1

    def acknowledged(self, record_id: RecordId, partition: TopicPartition, offset: int = NO_OFFSET) -> None:
        """The broker confirmed the record, at `offset` if the answer named one."""
        stream = self._stream(record_id, partition)
        stream.acknowledged.add(record_id.number)
        if offset != NO_OFFSET:
            stream.offsets[record_id.number] = offset

    def has(self, record_id: RecordId) -> bool:
        """Whether the record was confirmed."""
        stream = self.streams.get(record_id.stream)
        return stream is not None and record_id.number in stream.acknowledged

    def elsewhere(self) -> Ledger:
        """The same records, as another place may hold them that they were passed on to: at any offset."""
        copy = Ledger()
        copy.streams = {name: replace(stream, offsets={}) for name, stream in self.streams.items()}
        return copy

    @property
    def sent_count(self) -> int:
        return sum(stream.sent for stream in self.streams.values())

    @property
    def acknowledged_count(self) -> int:
        return sum(len(stream.acknowledged) for stream in self.streams.values())

    def _stream(self, record_id: RecordId, partition: TopicPartition) -> LedgerStream:
        stream = self.streams.get(record_id.stream)
        if stream is None:
            stream = self.streams[record_id.stream] = LedgerStream(partition)
        return stream


@dataclass(frozen=True, slots=True)
class Counts:
    sent: int = 0
    """Records the sender handed over; without a ledger, as many as the numbering shows."""
    stored: int = 0
    """Records with an id that the partition holds, duplicates included."""
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    misplaced: int = 0
    """Records that stand at another offset than the one their sender was told."""
    unnumbered: int = 0
    """Records without an id; they say nothing about loss or order."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.misplaced)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.sent + other.sent,
            self.stored + other.stored,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.out_of_order + other.out_of_order,
            self.misplaced + other.misplaced,
            self.unnumbered + other.unnumbered,
        )


class Found(StrEnum):
    """What an audit makes of one stored record."""

    FRESH = "fresh"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    UNNUMBERED = "unnumbered"


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers of a stream that are nowhere, both ends inclusive."""

    stream: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.stream}/{self.first} is missing"
        return f"{self.stream}/{self.first} to {self.last} are missing"


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    partition: TopicPartition
    counts: Counts
    examples: tuple[str, ...] = ()
    """Records by their offsets, then gaps by their streams."""
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditReport:
    partitions: tuple[PartitionAudit, ...]

    @property
    def total(self) -> Counts:
        return sum((partition.counts for partition in self.partitions), Counts())

    @property
    def clean(self) -> bool:
        return self.total.clean


@dataclass(slots=True)
class _Partition:
    log_start_offset: int = 0
    stored: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    misplaced: int = 0
    unnumbered: int = 0
    highest: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def quote(self, example: str) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(example)

    def miss(self, gap: Gap) -> None:
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append(gap)

    def report(self, partition: TopicPartition, sent: int, lost: int) -> PartitionAudit:
        examples = [*self.examples, *map(str, self.gaps)][:MAX_EXAMPLES]
        return PartitionAudit(partition, self.counts(sent, lost), tuple(examples), tuple(self.gaps))

    def counts(self, sent: int, lost: int) -> Counts:
        return Counts(sent, self.stored, lost, self.duplicated, self.out_of_order, self.misplaced, self.unnumbered)


@dataclass(slots=True)
class _Stream:
    home: TopicPartition
    """The partition that holds the lowest number."""
    lowest: int
    promised_offsets: Mapping[int, int]
    stored: NumberSet = field(default_factory=NumberSet)


class Audit:
    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._streams: dict[str, _Stream] = {}

    def open_partition(self, partition: TopicPartition, log_start_offset: int = 0) -> None:
        """Announce a partition, so that an empty one is reported too.

        A log that starts later had its head removed by retention: what is missing there is not a loss.
        """
        self._partitions.setdefault(partition, _Partition()).log_start_offset = log_start_offset

    def observe(self, partition: TopicPartition, offset: int, record_id: RecordId | None) -> Found:
        """Account for one stored record. Records of a partition are observed in the order of their offsets."""
        entry = self._partitions.get(partition)
        if entry is None:
            entry = self._partitions[partition] = _Partition()
        if record_id is None:
            entry.unnumbered += 1
            return Found.UNNUMBERED
        entry.stored += 1
        name, number = record_id
        stream = self._streams.get(name)
        if stream is None:
            stream = self._open_stream(record_id, partition)
        elif number < stream.lowest:
            stream.home, stream.lowest = partition, number
        if not stream.stored.add(number):
            entry.duplicated += 1
            entry.quote(quote_duplicate(record_id, offset))
            return Found.DUPLICATED
        promised = stream.promised_offsets.get(number, offset)
        if promised != offset:
            entry.misplaced += 1
            entry.quote(f"{record_id} was acknowledged at offset {promised} and stands at {offset}")
        highest = entry.highest.get(name, -1)
        if number < highest:
            entry.out_of_order += 1
            entry.quote(quote_out_of_order(record_id, offset, highest))
            return Found.OUT_OF_ORDER
        entry.highest[name] = number
        return Found.FRESH

    def report(self) -> AuditReport:
        sent: Counter[TopicPartition] = Counter()
        lost: Counter[TopicPartition] = Counter()
        if self._ledger is None:
            self._judge_by_numbering(sent, lost)
        else:
            self._judge_by_ledger(self._ledger, sent, lost)
        return AuditReport(
            tuple(
                entry.report(partition, sent[partition], lost[partition])
                for partition, entry in sorted(self._partitions.items())
            )
        )

    def _open_stream(self, record_id: RecordId, partition: TopicPartition) -> _Stream:
        name, number = record_id
        if len(self._streams) >= MAX_STREAMS:
            raise TooManyStreams(
                f"the records of {partition.topic} name more than {MAX_STREAMS:,} streams; number the records per "
                "producer and partition instead of per key"
            )
        promised = self._ledger.streams.get(name) if self._ledger else None
        stream = self._streams[name] = _Stream(partition, number, promised.offsets if promised else {})
        return stream

    def _judge_by_numbering(self, sent: Counter[TopicPartition], lost: Counter[TopicPartition]) -> None:
        for name, stream in sorted(self._streams.items()):
            entry = self._partitions[stream.home]
            first = stream.lowest if entry.log_start_offset else 0
            for gap_first, gap_last in stream.stored.gaps(first=first):
                lost[stream.home] += gap_last - gap_first + 1
                entry.miss(Gap(name, gap_first, gap_last))
            sent[stream.home] += len(stream.stored)
        sent.update(lost)

    def _judge_by_ledger(self, ledger: Ledger, sent: Counter[TopicPartition], lost: Counter[TopicPartition]) -> None:
        nothing = NumberSet()
        for name, promised in sorted(ledger.streams.items()):
            stream = self._streams.get(name)
            home = stream.home if stream else promised.partition
            entry = self._partitions.setdefault(home, _Partition())
            for gap_first, gap_last in promised.acknowledged.missing_from(stream.stored if stream else nothing):
                lost[home] += gap_last - gap_first + 1
                entry.miss(Gap(name, gap_first, gap_last))
            sent[home] += promised.sent


def quote_duplicate(record_id: RecordId, offset: int) -> str:
    return f"{record_id} is stored again at offset {offset}"


def quote_out_of_order(record_id: RecordId, offset: int, highest: int) -> str:
    return f"{record_id} at offset {offset} comes after {record_id.stream}/{highest}"
