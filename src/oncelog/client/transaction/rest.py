"""How long to leave a coordinator alone between two transactions.

By protocol 2 an end is answered before its markers are written. The first record that comes meanwhile finds the
coordinator busy, and a Kafka leader then asks it again only after a pause of its own, which is many times longer than
the markers take. A moment of rest on our side is cheaper; how long it has to be is learned from how long it takes until
the first records or offsets of a transaction are taken.

Kafka's coordinator also refuses to add two things to a transaction at once. Where that was seen, offsets and records go
one after the other for a long time.
"""

from __future__ import annotations

MAX_REST_MS = 8
MAX_ANSWER_MS = 1_000
PENALTY_MS = 15
"""A leader's answer that took so much longer than a coordinator's was held up. Kafka's pause is 20 ms."""
QUICK_IN_A_ROW = 100
"""After so many quick transactions a shorter rest is tried."""
GIVE_UP_TRANSACTIONS = 50
"""Where even the longest rest did not help, none is taken for so many transactions: something else is slow."""


SERIAL_TRANSACTIONS = 1_000
"""So many transactions add one thing after the other since one was refused."""


class Rest:
    def __init__(self) -> None:
        self.length_ms = 0
        self.until_ms = 0
        self._began_ms: int | None = None
        self._has_entered = False
        self._quickest_ms = MAX_ANSWER_MS
        self._quick = 0
        self._given_up = 0
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
        self._quickest_ms = min(took_ms, self._quickest_ms)
        self.until_ms = now_ms + self.length_ms
        self._began_ms = None
        self._has_entered = False
        self._given_up = max(0, self._given_up - 1)
        self._serial = max(0, self._serial - 1)

    def began(self, now_ms: int) -> None:
        """Records or offsets of a transaction leave for the first time."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def entered(self, now_ms: int) -> None:
        """Some of them were taken: how long the first took tells."""
        if self._has_entered or self._began_ms is None:
            return
        self._has_entered = True
        if now_ms - self._began_ms - self._quickest_ms >= PENALTY_MS:
            self._lengthen()
            return
        self._quick += 1
        if self._quick >= QUICK_IN_A_ROW:
            self._quick = 0
            self.length_ms = max(0, self.length_ms - 1)

    def _lengthen(self) -> None:
        self._quick = 0
        if self._given_up:
            return
        if self.length_ms == MAX_REST_MS:
            self.length_ms = 0
            self._given_up = GIVE_UP_TRANSACTIONS
        else:
            self.length_ms = min(MAX_REST_MS, max(1, 2 * self.length_ms))
