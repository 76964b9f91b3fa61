"""What a consumer counts in its user's thread: polls, what they handed out, and offset commits.

Plain sums that only grow, and maxima that whoever makes windows of them may set back. What the fetcher and the group
count is theirs (`fetch/counters.py`, `membership/membership.py`); names and units that users see are in
`consumer/metrics.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = -1


@dataclass(slots=True)
class ConsumerCounters:
    records_consumed: int = 0
    bytes_consumed: int = 0
    """Of these records, uncompressed."""
    polls: int = 0
    """Those with one before them, whose distance is known."""
    between_polls_ms: int = 0
    between_polls_ms_max: int = 0
    in_poll_ms: int = 0
    """The part of that time that was spent in `poll()`, mostly waiting."""
    last_poll_ms: int = NEVER
    """When the last one began."""
    commits: int = 0
    commit_ms: int = 0
    commit_ms_max: int = 0
    commit_sync_ns: int = 0
    """That the user waited in `commit()`."""
    committed_ns: int = 0
    """That the user waited in `committed()`."""
    _poll_ended_ms: int = NEVER

    def poll_began(self, now_ms: int) -> None:
        if self.last_poll_ms != NEVER:
            distance_ms = now_ms - self.last_poll_ms
            self.polls += 1
            self.between_polls_ms += distance_ms
            self.between_polls_ms_max = max(self.between_polls_ms_max, distance_ms)
            self.in_poll_ms += max(0, self._poll_ended_ms - self.last_poll_ms)
        self.last_poll_ms = now_ms

    def poll_ended(self, now_ms: int) -> None:
        self._poll_ended_ms = now_ms

    def took(self, records: int, size_bytes: int) -> None:
        """What a cursor handed out."""
        self.records_consumed += records
        self.bytes_consumed += size_bytes

    def offsets_committed(self, took_ms: int) -> None:
        """The coordinator took them, so long after it was asked."""
        self.commits += 1
        self.commit_ms += took_ms
        self.commit_ms_max = max(self.commit_ms_max, took_ms)
