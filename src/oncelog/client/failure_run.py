"""How many records in a row may fail for good. More of them are the fault of whoever processes them, not theirs.

Counts only; what a failure is, and where its record goes, others decide.
"""

from __future__ import annotations

from oncelog.errors import OncelogError

MAX_FAILURES_IN_A_ROW = 10
"""By default. A mistake (a table that is not there, a service that is away) would otherwise move a whole topic into
the dead-letter topic."""


class TooManyFailures(OncelogError):
    """More records in a row have failed than `max_failures_in_a_row` allows, so the rest is left where it is. Nothing
    is lost: fix what fails, and run again."""


class FailureRun:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def succeeded(self) -> None:
        """One was processed, so not all fail."""
        self._count = 0

    def failed(self, place: str, error: BaseException) -> None:
        """One more is to be given up. Raises TooManyFailures if that is one too many: then it is not."""
        if self._count >= self._limit:
            raise TooManyFailures(
                f"{self._count} records in a row have failed, and now {place}: {type(error).__name__}: {error}. So the"
                " fault is probably not theirs: it and those behind it stay where they are, for the next run. Fix what"
                f" fails, or raise max_failures_in_a_row ({self._limit})"
            ) from error
        self._count += 1
