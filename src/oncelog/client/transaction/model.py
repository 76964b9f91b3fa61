"""The phases of a producer's transactions, and what their core knows of the rest. Values and interfaces only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.membership.backoff import Backoff
from oncelog.client.transaction_errors import TransactionMisuse


class Phase(Enum):
    NEW = auto()
    """Without an identity: `init_transactions()` gets one."""
    READY = auto()
    OPEN = auto()
    ENDING = auto()
    """A commit or an abort is under way."""
    PREPARED = auto()
    """Somebody else ends it."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    transactional_id: str
    transaction_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int

    def new_backoff(self, jitter: Callable[[], float], first_ms: int | None = None) -> Backoff:
        first_ms = self.retry_backoff_ms if first_ms is None else first_ms
        return Backoff(first_ms, max(first_ms, self.retry_backoff_max_ms), jitter)


class RecordFlow(Protocol):
    """The records on their way, as a transaction sees them."""

    def all_queues(self) -> Iterable[PartitionQueue]: ...

    def is_quiet(self) -> bool:
        """Every record that was accepted has its result."""

    def is_in_flight(self) -> bool:
        """A broker has not answered yet."""

    def refuse_waiting(self, error: Exception) -> None:
        """Records that no broker has at the moment fail."""

    def give_up(self, error: Exception) -> None:
        """Everything fails, now and later."""


def not_begun() -> TransactionMisuse:
    return TransactionMisuse("records of a transactional producer need a transaction: call begin() first")


WHY_NOT_BEGIN = {
    Phase.NEW: "call init_transactions() first",
    Phase.OPEN: "the transaction that was begun is open; commit() or abort() it first",
    Phase.ENDING: "the last transaction is being ended; wait for commit() or abort()",
    Phase.PREPARED: "the last transaction is prepared, and another process ends it; close this producer",
}
WHY_NOT_OPEN = {
    Phase.NEW: "call init_transactions() and begin() first",
    Phase.READY: "no transaction was begun; call begin() first",
    Phase.ENDING: "the transaction is being ended already",
    Phase.PREPARED: "the transaction is prepared, and another process ends it; close this producer",
}
