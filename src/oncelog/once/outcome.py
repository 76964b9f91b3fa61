"""What became of a record, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    DONE = "done"
    """The effect was committed, just now."""
    REPEATED = "repeated"
    """It had been dealt with before: nothing was done."""
    OUTDATED = "outdated"
    """A newer version of its entity was applied before: nothing was done."""
    FAILED = "failed"
    """Its effect failed for good; it waits in the database for its way to the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the database is told about a message: its effect is done, or has failed for a reason."""

    state: str
    reason: str | None = None


DONE = Mark("done")


@dataclass(slots=True)
class Tally:
    """How many records came to which end."""

    done: int = 0
    repeated: int = 0
    outdated: int = 0
    failed: int = 0

    def add(self, outcomes: list[Outcome]) -> None:
        self.done += outcomes.count(Outcome.DONE)
        self.repeated += outcomes.count(Outcome.REPEATED)
        self.outdated += outcomes.count(Outcome.OUTDATED)
        self.failed += outcomes.count(Outcome.FAILED)

    @property
    def total(self) -> int:
        return self.done + self.repeated + self.outdated + self.failed
