"""What the years between two lives of a broker count for: nothing.

Offsets and transactional ids go when they are old, by stamps that the log keeps as times of day. While the broker was
stopped nobody could renew them, and the clock may have been set meanwhile, or be wrong when it starts. So the time
between the newest stamp of the log and the start makes nothing older: what expires does so late rather than early.
"""

from __future__ import annotations

from typing import NamedTuple


class Absence(NamedTuple):
    """From the newest stamp of the log until the coordinator was loaded. None at all if the clock was set back."""

    from_ms: int
    until_ms: int

    def age_ms(self, stamp_ms: int, now_ms: int) -> int:
        """How old something is by now, the absence left out."""
        missed_ms = max(0, self.until_ms - self.from_ms) if stamp_ms <= self.from_ms else 0
        return now_ms - stamp_ms - missed_ms


NO_ABSENCE = Absence(0, 0)
