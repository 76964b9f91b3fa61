"""Operations: what one process asked for and what it was told, as values. Judges nothing.

An operation is a transaction, a poll, a send or a look at a group's offsets, or all of these at once. Its `invoked` and
`completed` are readings of one clock that all processes share; only their order counts. Every value that is sent is
unique in the history, attempts that repeat an earlier one included: a value that is read tells who sent it, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from oncelog.types import TopicPartition

Value = int | str


class Outcome(StrEnum):
    OK = "ok"
    """It happened: committed, stored, answered."""
    FAILED = "failed"
    """It certainly did not: aborted, or never asked to be committed."""
    UNKNOWN = "unknown"
    """Nobody was told: it may have happened."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition, in the order in which they were sent or read.

    `offsets[i]` is where `values[i]` stands, NO_OFFSET where the sender was not told.
    """

    partition: TopicPartition
    values: Sequence[Value]
    offsets: Sequence[int]


class GroupOffset(NamedTuple):
    """The next offset that a group will read of a partition; NO_OFFSET if it has none."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Operation:
    process: str
    """One life of a client: who comes after a crash has another name."""
    number: int
    """Counts the operations of its process."""
    invoked: int
    completed: int | None
    """None if its process was never told, or did not live to write it down."""
    outcome: Outcome
    is_transaction: bool = False
    reads_committed: bool = True
    moved: Sequence[TopicPartition] = ()
    """Partitions whose position was set anew before these polls: assigned, sought, rewound."""
    polls: Sequence[Records] = ()
    sends: Sequence[Records] = ()
    offset_commits: Sequence[GroupOffset] = ()
    offset_reads: Sequence[GroupOffset] = ()
    drained: Sequence[TopicPartition] = ()
    """Read to their end, when no transaction was open and nobody wrote any more."""

    def __str__(self) -> str:
        return f"{'transaction' if self.is_transaction else 'operation'} {self.number} of {self.process}"
