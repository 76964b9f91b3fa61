"""What a check of a history found: counts, a few examples of each kind, and words for a person. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from oncelog.types import TopicPartition

MAX_EXAMPLES = 10
"""Findings of one kind that a report quotes; the counts are complete."""


class Kind(StrEnum):
    """Violations. The values are what `explain` calls them."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    PHANTOM = "phantom"
    ABORTED_READ = "aborted read"
    TORN_TRANSACTION = "torn transaction"
    INCONSISTENT_OFFSET = "inconsistent offset"
    NONMONOTONIC_POLL = "non-monotonic poll"
    POLL_SKIP = "poll skip"
    NONMONOTONIC_SEND = "non-monotonic send"
    NONMONOTONIC_OFFSET_COMMIT = "non-monotonic offset commit"
    LOST_OFFSET_COMMIT = "lost offset commit"
    PHANTOM_OFFSET_COMMIT = "phantom offset commit"
    CONSUMED_TWICE = "consumed twice"
    NEVER_CONSUMED = "never consumed"
    CYCLE = "cycle"


MEANINGS: Mapping[Kind, str] = {
    Kind.LOST_WRITE: "acknowledged and committed, and readers read past it, but it was never read",
    Kind.DUPLICATE: "one value stands at two places",
    Kind.PHANTOM: "a value was read that was never sent there",
    Kind.ABORTED_READ: "a read_committed reader saw a value whose transaction did not commit",
    Kind.TORN_TRANSACTION: "a part of a transaction can be read, another part cannot",
    Kind.INCONSISTENT_OFFSET: "one offset holds two values",
    Kind.NONMONOTONIC_POLL: "offsets went back under a reader that had not moved",
    Kind.POLL_SKIP: "a reader that had not moved was not given a record that others read",
    Kind.NONMONOTONIC_SEND: "a later record of a process was stored before an earlier one",
    Kind.NONMONOTONIC_OFFSET_COMMIT: "a group's offset was committed behind one that was committed before",
    Kind.LOST_OFFSET_COMMIT: "a group's offset was committed, and an older one was read afterwards",
    Kind.PHANTOM_OFFSET_COMMIT: "a group's offset was read that no committed operation can have set",
    Kind.CONSUMED_TWICE: "two committed transactions of a group consumed the same record",
    Kind.NEVER_CONSUMED: "a group went past a record that none of its transactions consumed",
    Kind.CYCLE: "transactions read what each other wrote: none can have come first",
}


class Findings:
    """Violations while they are collected."""

    def __init__(self) -> None:
        self.counts: Counter[Kind] = Counter()
        self.examples: dict[Kind, list[str]] = {}

    def add(self, kind: Kind, example: str) -> None:
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(example)


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    count: int
    examples: tuple[str, ...]

    def explain(self) -> str:
        lines = [f"{self.kind}: {self.count:,} ({MEANINGS[self.kind]})", *(f"  {one}" for one in self.examples)]
        if self.count > len(self.examples):
            lines.append(f"  and {self.count - len(self.examples):,} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Tally:
    """How much was looked at: a check of nothing finds nothing."""

    processes: int
    committed: int
    """Transactions; those of unknown outcome count here if they were seen."""
    aborted: int
    undecided: int
    """Transactions of which nobody was told and nothing was seen."""
    sent: int
    polled: int

    def explain(self) -> str:
        return (
            f"{self.processes:,} processes sent {self.sent:,} records and polled {self.polled:,}; "
            f"{self.committed:,} transactions were committed, {self.aborted:,} aborted, {self.undecided:,} undecided"
        )


@dataclass(frozen=True, slots=True)
class Report:
    tally: Tally
    violations: tuple[Violation, ...]
    unseen: Mapping[TopicPartition, int]
    """Committed records beyond the last one that was read: no violation, but nothing is known of them either."""

    @property
    def is_clean(self) -> bool:
        return not self.violations

    @property
    def counts(self) -> dict[Kind, int]:
        return {violation.kind: violation.count for violation in self.violations}

    def explain(self) -> str:
        """A verdict, a line on what was checked, and a paragraph for each kind of violation."""
        total = sum(self.counts.values())
        verdict = "no violation" if self.is_clean else f"{total:,} violations of {len(self.violations)} kinds"
        unseen = [f"{partition}: {count:,} committed records were not read" for partition, count in self.unseen.items()]
        return "\n".join(
            [verdict, self.tally.explain(), *(violation.explain() for violation in self.violations), *unseen]
        )
