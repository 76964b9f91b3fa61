"""The check of a history, after the manner of Jepsen's workload for Kafka: may a log with transactions answer so?

Operations come in one by one, those of one process in their order, processes in any order. What only polled is
forgotten at once, but for the values it saw; what wrote or committed offsets is kept until the end, because only the
whole history shows what became of it.

It takes for granted that every value is sent once, and that somebody reads each partition from its beginning, as does
each group whose transactions are recorded: a record before the first one that anybody read would count as lost. It
cannot know of what no process wrote down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncelog.audit.history.cycles import judge_cycles
from oncelog.audit.history.fates import Fates, fate
from oncelog.audit.history.group_offsets import GroupOffsets
from oncelog.audit.history.model import Operation, Outcome, Value
from oncelog.audit.history.picture import Picture
from oncelog.audit.history.positions import Positions
from oncelog.audit.history.report import Findings, Kind, Report, Tally, Violation
from oncelog.errors import OncelogError
from oncelog.types import TopicPartition


class HistoryUnusable(OncelogError):
    """The history does not keep its own rules, so that nothing can be said about the log."""


def check(operations: Iterable[Operation]) -> Report:
    checker = Checker()
    for operation in operations:
        checker.observe(operation)
    return checker.report()


class Checker:
    def __init__(self) -> None:
        self._findings = Findings()
        self._picture = Picture(self._findings)
        self._positions = Positions(self._picture, self._findings)
        self._processes: set[str] = set()
        self._polled = 0
        self._kept: list[Operation] = []
        self._writer_of: dict[Value, int] = {}
        self._written_to: set[TopicPartition] = set()

    def observe(self, operation: Operation) -> None:
        self._processes.add(operation.process)
        self._polled += sum(len(records.values) for records in operation.polls)
        self._picture.observe(operation)
        self._positions.observe(operation)
        if operation.sends or operation.offset_commits or operation.offset_reads:
            self._keep(operation)

    def report(self) -> Report:
        """To be asked for once, when the whole history was observed."""
        fates = Fates(self._picture, self._findings)
        for operation in self._kept:
            fates.judge(operation)
        self._positions.judge_gaps(fates.aborted_but_visible)
        GroupOffsets(self._picture, self._findings).judge(self._kept)
        judge_cycles(self._kept, self._writer_of, self._findings)
        self._judge_phantoms()
        counts, examples = self._findings.counts, self._findings.examples
        violations = tuple(Violation(kind, counts[kind], tuple(examples[kind])) for kind in Kind if counts[kind])
        return Report(self._tally(), violations, dict(sorted(fates.unseen.items())))

    def _keep(self, operation: Operation) -> None:
        index = len(self._kept)
        self._kept.append(operation)
        for records in operation.sends:
            known = len(self._writer_of)
            self._writer_of.update(dict.fromkeys(records.values, index))
            if len(self._writer_of) != known + len(records.values):
                raise HistoryUnusable(f"{operation} sends a value to {records.partition} that was sent before")
            self._written_to.add(records.partition)

    def _judge_phantoms(self) -> None:
        for value in (self._picture.visible | self._picture.glimpsed) - self._writer_of.keys():
            place = self._picture.place_of[value]
            # Whoever filled a partition that the history never writes to did not keep one.
            if self._picture.partition_at(place) in self._written_to:
                self._findings.add(Kind.PHANTOM, f"{value!r} at {self._picture.name(place)} was never sent")

    def _tally(self) -> Tally:
        transactions = (operation for operation in self._kept if operation.is_transaction)
        fates = Counter(fate(operation, self._picture) for operation in transactions)
        return Tally(
            processes=len(self._processes),
            committed=fates[Outcome.OK],
            aborted=fates[Outcome.FAILED],
            undecided=fates[Outcome.UNKNOWN],
            sent=len(self._writer_of),
            polled=self._polled,
        )
