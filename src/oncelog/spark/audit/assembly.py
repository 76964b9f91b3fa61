"""A report from the few rows that the job brings back. Pure: it knows rows by their fields, and nothing of Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.audit.account import (
    MAX_EXAMPLES,
    AuditReport,
    Counts,
    Gap,
    PartitionAudit,
    quote_duplicate,
    quote_out_of_order,
)
from oncelog.audit.ids import RecordId
from oncelog.audit.spread import Bins, Spread, TopicAudit
from oncelog.types import TopicPartition


class Cell(NamedTuple):
    """What the records of one partition in one bin of offsets are."""

    partition: int
    bin: int
    stored: int
    unnumbered: int
    duplicated: int
    out_of_order: int


class Sent(NamedTuple):
    """What the streams of one partition sent, and what of it is missing."""

    partition: TopicPartition
    sent: int
    lost: int


class Wrong(NamedTuple):
    """A record that is stored again, or, with `highest`, stands behind that number."""

    partition: TopicPartition
    offset: int
    record_id: RecordId
    highest: int | None


@dataclass(slots=True)
class Sheet:
    """All that is to be said about one topic."""

    topic: str
    bins: Bins
    partitions: Iterable[TopicPartition]
    cells: list[Cell] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    gaps: list[tuple[TopicPartition, Gap]] = field(default_factory=list)

    @property
    def counts(self) -> dict[TopicPartition, Counts]:
        counts = dict.fromkeys(self.partitions, Counts())
        for cell in self.cells:
            counts[TopicPartition(self.topic, cell.partition)] += Counts(
                stored=cell.stored,
                duplicated=cell.duplicated,
                out_of_order=cell.out_of_order,
                unnumbered=cell.unnumbered,
            )
        for partition, sent, lost in self.sent:
            counts[partition] = counts.get(partition, Counts()) + Counts(sent=sent, lost=lost)
        return counts

    @property
    def has_losses(self) -> bool:
        return any(sent.lost for sent in self.sent)

    @property
    def has_wrong_records(self) -> bool:
        return any(cell.duplicated or cell.out_of_order for cell in self.cells)

    def audit(self) -> TopicAudit:
        examples, gaps = self._examples(), defaultdict(list)
        for partition, gap in sorted(self.gaps, key=lambda each: (each[1].stream, each[1].first)):
            gaps[partition].append(gap)
        report = AuditReport(
            tuple(
                PartitionAudit(
                    partition,
                    counts,
                    tuple([*examples[partition], *map(str, gaps[partition])][:MAX_EXAMPLES]),
                    tuple(gaps[partition]),
                )
                for partition, counts in sorted(self.counts.items())
            )
        )
        cells = ((cell.bin, cell.stored, cell.duplicated, cell.out_of_order) for cell in self.cells)
        return TopicAudit(self.topic, report, Spread.of(self.bins, cells))

    def _examples(self) -> dict[TopicPartition, list[str]]:
        examples: dict[TopicPartition, list[str]] = defaultdict(list)
        for partition, offset, record_id, highest in sorted(self.wrong):
            examples[partition].append(
                quote_duplicate(record_id, offset)
                if highest is None
                else quote_out_of_order(record_id, offset, highest)
            )
        return examples
