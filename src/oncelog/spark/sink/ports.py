"""What the sink needs from the world, as its shell provides it: the journal, coordinators, and the log.

Any call may raise, with its effect done or not: the caller gives up, and whoever comes next starts from the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import Prepared
from oncelog.spark.sink.finishing import Answer, Copy, Seen
from oncelog.spark.sink.identity import Term
from oncelog.spark.sink.journal import Entry


class Journal(Protocol):
    def term(self) -> Term | None:
        """Who holds it now: DescribeTransactions of `{prefix}-driver`. Changes nothing."""

    def take_over(self) -> None:
        """InitProducerId of `{prefix}-driver`. When it returns, no append of anybody before can happen any more."""

    def held(self) -> Term:
        """What `term` says as long as nobody else takes over. By protocol 2 each append makes it a later one."""

    def read(self) -> Sequence[Entry]:
        """All of it, read committed up to its end. Tells everything only after `take_over`."""

    def append(self, entry: Entry) -> None:
        """Durable when it returns. Raises JournalFenced when somebody has taken over."""


class Transactions(Protocol):
    def commit(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Answer]:
        """EndTxn(commit) to all in parallel, each until its outcome is certain or the time is up."""

    def abort(self, attempts: Sequence[Prepared]) -> None:
        """EndTxn(abort), best effort: one that has ended otherwise, or does not answer, is left as it is."""

    def list_open(self, prefix: str) -> Sequence[PreparedTransaction]:
        """ListTransactions: those in a state other than complete whose id begins with the prefix."""

    def fence(self, open_transactions: Sequence[PreparedTransaction]) -> None:
        """InitProducerId for each id: returns when none of them is open any more."""


class Log(Protocol):
    def look(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Seen]:
        """Reads the marker's place and the ranges, read committed; waits a while for the last stable offset."""

    def copy(self, plan: Copy) -> Prepared:
        """Does what the plan says. Where records are missing, the ranges of the copy say how many there were."""
