"""Whether the transaction before is complete, so that the next one is not held up.

By protocol 2 an end is answered before its markers are written. The first record that comes meanwhile finds the
coordinator busy, and a Kafka leader then asks it again only after a pause of its own, which is many times longer than
the markers take. To look at the transaction (DescribeTransactions changes nothing) until it is complete is cheaper, but
only where it happens: looking begins when the first records or offsets of a transaction were held up, and ends when
transactions have always been complete by the first look.

Kafka's coordinator also refuses to add two things to a transaction at once. Where that was seen, offsets and records go
one after the other for a long time.

Decides only when to send, never whether: a look that fails, or is in vain for too long, costs no more than it took.
"""

from __future__ import annotations

MAX_ANSWER_MS = 1_000
HELD_UP_MS = 15
"""A leader's answer that took so much longer than a coordinator's was held up. Kafka's pause is 20 ms."""
MAX_LOOKING_MS = 20
"""To look for longer is not cheaper than to be held up."""
AT_ONCE_MS = 1
"""Whoever begins so soon after an end will do so again: looking need not wait for it."""
MAX_LOOKS = 32
"""At one transaction, one after the other."""
NEVER_BUSY_TRANSACTIONS = 25
"""So many in a row that were complete by the first look show that looking is not needed."""
SERIAL_TRANSACTIONS = 1_000
"""So many transactions add one thing after the other since one was refused."""

BEING_COMPLETED = ("PrepareCommit", "PrepareAbort")
"""States of a transaction that has its outcome, but not all of its markers."""


class Completion:
    def __init__(self) -> None:
        self.look_until_ms = 0
        """Until then nothing of the next transaction leaves before a look has shown that the last one is complete."""
        self._ended_ms: int | None = None
        """Unless the next one has begun."""
        self._is_looking = False
        self._is_at_once = True
        self._never_busy = 0
        self._looks = 0
        self._began_ms: int | None = None
        self._has_entered = False
        self._quickest_ms = MAX_ANSWER_MS
        self._serial = 0

    @property
    def is_serial(self) -> bool:
        """Offsets and records of a transaction had better not be added at once."""
        return self._serial > 0

    def contended(self) -> None:
        """The coordinator was busy with the same transaction."""
        self._serial = SERIAL_TRANSACTIONS

    def ended(self, took_ms: int, now_ms: int) -> None:
        """The coordinator has answered the end of a transaction, which shows how quick answers can be."""
        self._ended_ms = now_ms
        self._quickest_ms = min(took_ms, self._quickest_ms)
        self.look_until_ms = now_ms + MAX_LOOKING_MS if self._is_looking else 0
        self._looks = 0
        self._began_ms = None
        self._has_entered = False
        self._serial = max(0, self._serial - 1)

    def wants_look(self, now_ms: int, *, is_needed: bool) -> bool:
        """`is_needed`: the next transaction has begun."""
        if is_needed and self._ended_ms is not None:
            self._is_at_once = now_ms - self._ended_ms <= AT_ONCE_MS
            self._ended_ms = None
        return now_ms < self.look_until_ms and (is_needed or self._is_at_once)

    def looked(self, state: str) -> None:
        """The state of the transaction in the coordinator's answer; empty if there was none."""
        self._looks += 1
        if state in BEING_COMPLETED and self._looks < MAX_LOOKS:
            return
        self.look_until_ms = 0
        self._never_busy = self._never_busy + 1 if self._looks == 1 else 0
        if self._never_busy >= NEVER_BUSY_TRANSACTIONS:
            self._is_looking = False

    def began(self, now_ms: int) -> None:
        """Records or offsets of a transaction leave for the first time."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def entered(self, now_ms: int) -> None:
        """Some of them were taken: how long the first took tells."""
        if self._has_entered or self._began_ms is None:
            return
        self._has_entered = True
        if now_ms - self._began_ms - self._quickest_ms >= HELD_UP_MS and not self._is_looking:
            self._is_looking = True
            self._never_busy = 0
