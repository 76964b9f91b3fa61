"""What a table sink needs from its database, as the two shells provide it.

Any call may raise, with its effect done or not: the caller gives up, and whoever comes next starts from the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from oncelog.spark.table.dialect import Dialect
from oncelog.spark.table.errors import TableError
from oncelog.spark.table.layout import Found, Layout
from oncelog.spark.table.names import TableName

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Row = tuple[Any, ...]
NO_VALUES: Mapping[str, Any] = {}


class Session(ABC):
    """One open transaction."""

    @abstractmethod
    def rows(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        """Run it; what it returns, if anything."""

    @abstractmethod
    def change(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> int:
        """Run it; how many rows it has changed."""


class Store(ABC):
    """One connection, opened when first needed, and again after it was lost."""

    dialect: ClassVar[Dialect]

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Session]:
        """Committed when the block ends, rolled back when it ends by an exception."""

    @abstractmethod
    def publishing(self, stage: TableName) -> AbstractContextManager[tuple[Session, str]]:
        """A transaction that outlives power failures, with the name by which it reads the staging area."""

    @abstractmethod
    def find(self, session: Session, table: TableName) -> Found | None: ...

    @abstractmethod
    def check_schema(self, session: Session, table: TableName) -> None:
        """Raises UnfitTable if there is none in which the table could be."""

    @abstractmethod
    def may_write(self, session: Session, layout: Layout) -> None:
        """Raises UnfitTable if this user may not."""

    @abstractmethod
    def lock_creation(self, session: Session) -> None:
        """Until the transaction ends nobody else creates tables of the ledger, or the target."""

    @abstractmethod
    def create_stage(self, stage: TableName, layout: Layout) -> None: ...

    @abstractmethod
    def stages(self, target: TableName, family: str) -> Sequence[str]:
        """Names of all staging areas whose names begin so."""

    @abstractmethod
    def drop_stage(self, stage: TableName) -> None:
        """Best effort: one that is still written to, or does not answer, is left to a later sweep."""

    @abstractmethod
    def fill(self, stage: TableName, layout: Layout, attempt: int, batches: Iterator[pa.RecordBatch]) -> int:
        """Stages all rows under the number of the attempt; how many there were. Runs in a task."""

    @abstractmethod
    def is_outage(self, error: BaseException) -> bool:
        """Whether the database, not the statement, is to blame, so that the same again may succeed."""

    def refused_row(self, stage: TableName, layout: Layout, attempts: Sequence[int]) -> str:
        """Which of the staged rows was refused, in words, or nothing where that cannot be found out. After the
        transaction that failed."""
        return ""

    @abstractmethod
    def explained(self, error: Exception) -> TableError | None:
        """What an error of the driver means, in our words. None if it is not one of the driver's."""

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Nobody should have to read a raw error of a driver."""
        try:
            yield
        except Exception as error:
            ours = self.explained(error)
            if ours is None:
                raise
            raise ours from error

    @abstractmethod
    def close(self) -> None: ...
