"""What has been processed: of one batch, and of a whole call. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch whose transaction is committed."""

    worker: int
    records: int
    outputs: int
    dead_letters: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    """What was committed for the group: where it goes on."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a call of `process()` has done, all workers together."""

    batches: int = 0
    """Committed transactions with records."""
    records: int = 0
    """Read, and done with."""
    outputs: int = 0
    """Sent, and visible; dead letters are not among them."""
    dead_letters: int = 0
    aborted: int = 0
    """Transactions that were begun and undone: a rebalance came between, or what was sent was refused."""
    failures: int = 0
    """How often the function raised, or returned what cannot be sent."""

    def __add__(self, other: ProcessReport) -> ProcessReport:
        names = [field.name for field in fields(self)]
        return ProcessReport(**{name: getattr(self, name) + getattr(other, name) for name in names})


OnBatch = Callable[[BatchReport], object]
