"""What every strategy has in common: a value that people choose, and a guard that does its work on one database.

A guard decides inside the effect's own transaction which records are to have their effect, and marks them there. So
mark and effect are committed together or not at all, whatever crashes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from oncelog.client.arguments import shown
from oncelog.once.database import Database, Transaction
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.types import TopicPartition

DEFAULT_SCOPE = "default"
NO_GENERATION = -1


class Record(Protocol):
    """What is needed of a consumer's record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Any: ...


Effect = Callable[[Any, Any], object]
"""A user's function of (connection, record)."""


class Guard(ABC):
    """A strategy at work, for one scope (usually a consumer group) on one database. Used by one thread at a time."""

    table: str | None
    """The table that grows with the messages, if any does: it is cleaned by age."""
    keeps_positions = False
    """Whether the database says where to go on, so that partitions have to be claimed."""

    def prepare(self, records: Sequence[Record]) -> None:  # noqa: B027
        """Before the effects' transaction, in short ones of its own: whatever others must see at once."""

    @abstractmethod
    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        """Mark the records, and say for each whether its effect is to happen (`DONE`) in this transaction."""

    def confirm(self, transaction: Transaction) -> None:  # noqa: B027
        """After the effects, as the last statement of their transaction. Raises to undo it."""

    def settle(self, is_committed: bool) -> None:  # noqa: B027
        """After the transaction's end."""

    def claim(
        self, partitions: Collection[TopicPartition], generation: int = NO_GENERATION
    ) -> Mapping[TopicPartition, int]:
        """Partitions were assigned to this worker; where the database says to go on, if that is where it is kept."""
        return {}

    def give_up(self, partitions: Collection[TopicPartition]) -> None:  # noqa: B027
        """Partitions are not this worker's any more."""

    def is_outage(self, error: BaseException) -> bool:
        """Whether something besides the database is away for the moment."""
        return False


class Strategy(ABC):
    """How an effect is made to happen once."""

    @abstractmethod
    def bind(self, database: Database, scope: str) -> Guard:
        """Ready to work: creates the tables that it needs."""


def check_strategy(given: object) -> None:
    """Raises TypeError for what cannot be bound to a database. None is the default."""
    if given is None or (not isinstance(given, type) and callable(getattr(given, "bind", None))):
        return
    if isinstance(given, type) and issubclass(given, Strategy):
        raise TypeError(f"strategy is the class {given.__name__}: make an object of it, once.{given.__name__}(...)")
    raise TypeError(f"strategy is an object such as once.MessageTable() or once.DatabaseOffsets(), not {shown(given)}")
