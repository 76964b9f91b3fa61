"""What goes into the transaction coordinator besides requests, and what comes out: values only.

Owns the order of effects: records first, then replies and markers. Never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.coordinator.effects import Caller, Reply
from oncelog.coordinator.transactions.records import TransactionRecord
from oncelog.types import TopicPartition
from oncelog.wire.codec import Message


class Markers(NamedTuple):
    """One transaction's outcome, to be written into each of these partitions by WriteTxnMarkers, as often as it takes.
    Comes back, as it is, with `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    serial: int
    """Tells the transactions of one process apart: by protocol 1 two of them can be alike in everything else."""


class Effects(NamedTuple):
    """DURABLE FIRST, SENT AFTERWARDS: the records are one batch; they are appended, then replayed one by one. Replies
    and markers leave when the high watermark has passed everything appended so far, and not at all if the append has
    failed: then the replies say so, in the shape of their API, and the markers are dropped."""

    records: list[TransactionRecord]
    replies: list[Reply]
    markers: list[Markers]

    def extend(self, other: Effects) -> None:
        self.records.extend(other.records)
        self.replies.extend(other.replies)
        self.markers.extend(other.markers)


def no_effects() -> Effects:
    return Effects([], [], [])


def answer(caller: Caller, body: Message) -> Effects:
    """A reply, and nothing to remember."""
    return Effects([], [Reply(caller.ticket, body)], [])


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's keys that matter to transactions, with Kafka's defaults. Dots are underscores."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600 * 1_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    """How long after a failed attempt an abort is tried again."""
