"""What a task tells the driver: the transaction that it left open, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.identity import Term
from oncelog.types import TopicPartition

MAX_EXPIRY_MARGIN_MS: Final = 30_000
EXPIRY_MARGIN_SHARE: Final = 4
"""No decision in the last quarter of a transaction's time, or its last half minute, whichever is shorter."""


def decide_by_ms(begun_ms: int, timeout_ms: int) -> int:
    return begun_ms + timeout_ms - min(timeout_ms // EXPIRY_MARGIN_SHARE, MAX_EXPIRY_MARGIN_MS)


class Range(NamedTuple):
    """Where a transaction's records lie in one partition: others' may lie between them, hence their number."""

    partition: TopicPartition
    first_offset: int
    last_offset: int
    records: int


class Place(NamedTuple):
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """All records and the marker are stored in one open transaction, the only one of its (producer id, epoch)."""

    slot: int
    transaction: PreparedTransaction
    ranges: tuple[Range, ...]
    marker: Place
    decide_by_ms: int


class Nothing(Enum):
    EMPTY = "the slot had no rows, so there is no transaction"
    SKIPPED = "the journal had the batch as done when it was planned"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """`term` is that of the plan which the task was started by."""

    query_id: str
    batch_id: int
    slot: int
    term: Term
    outcome: Prepared | Nothing
