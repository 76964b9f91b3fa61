"""How many records in a row may fail for good. More of them are the fault of whoever processes them, not theirs.

Counts only; what a failure is, and where its record goes, others decide.
"""

from __future__ import annotations

from oncelog.errors import OncelogError
from oncelog.printable import counted

MAX_FAILURES_IN_A_ROW = 10
"""By default. A mistake (a table that is not there, a service that is away) would otherwise move a whole topic into
the dead-letter topic."""
MAX_NAMED = 10
"""Records that the error names one by one."""


class TooManyFailures(OncelogError):
    """More records in a row have failed than `max_failures_in_a_row` allows, so the rest is left where it is. Nothing
    is lost: fix what fails, and run again."""


class FailureRun:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failed: dict[str, bool] = {}
        """The records of the run, by their places, in order; and whether they were moved."""

    def succeeded(self) -> None:
        """One was processed, so not all fail."""
        self._failed.clear()

    def moved(self) -> None:
        """Those that failed so far are in the dead-letter topic, for good."""
        self._failed = dict.fromkeys(self._failed, True)

    def failed(self, place: str, error: BaseException) -> None:
        """One more is to be given up; if it was already, and is read again, it counts once. Raises TooManyFailures if
        that is one too many: then it is not."""
        if place in self._failed:
            return
        if len(self._failed) >= self._limit:
            raise TooManyFailures(
                f"{_counted(len(self._failed))} in a row failed ({_named(list(self._failed))}), and now {place}:"
                f" {type(error).__name__}: {error}. So the fault is probably not theirs. {self._fate(place)} Fix what"
                f" fails and run again, or raise max_failures_in_a_row ({self._limit})"
            ) from error
        self._failed[place] = False

    def _fate(self, place: str) -> str:
        moved = sum(self._failed.values())
        if not moved:
            return (
                "None of them was moved to the dead-letter topic: nothing of their batch is visible, its offsets are"
                " not committed, and the next run reads it again."
            )
        if moved == len(self._failed):
            return f"Those before went to the dead-letter topic; {place} and what is behind it stay for the next run."
        first = next(one for one, is_moved in self._failed.items() if not is_moved)
        return f"{moved} of them went to the dead-letter topic; {first} and what is behind it stay for the next run."


def _counted(count: int) -> str:
    return counted(count, "record")


def _named(places: list[str]) -> str:
    if len(places) <= MAX_NAMED:
        return ", ".join(places)
    return f"{', '.join(places[: MAX_NAMED - 1])} and {len(places) - MAX_NAMED + 1} more, up to {places[-1]}"
