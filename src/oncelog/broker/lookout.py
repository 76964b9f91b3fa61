"""Whether the loop should look for the next request a moment longer before it sleeps.

A client that waits for every answer sends its next request a few ten microseconds later. Waking a core that has gone to
sleep meanwhile takes longer than serving a small request; so after a request the loop stays awake for `LOOK_S`. Where
that finds nothing it is tried ever more rarely, until it finds something again: a broker that is seldom asked, or whose
clients take their time between requests, sleeps as it should.

Owns this decision alone. Knows no loop and no clock: the server looks, and tells the time.
"""

from __future__ import annotations

LOOK_S = 0.0001
"""How long nothing may arrive before the loop sleeps: about twice what falling asleep and waking cost."""

WORTHWHILE = 3
"""Requests that a look must have found for its last, futile part to be paid for."""

MAX_FUTILE = 8
"""Doublings of the number of requests after which it is tried again."""


class Lookout:
    __slots__ = ("_found", "_futile", "_glances", "_is_looking", "_to_skip", "_until_s")

    def __init__(self) -> None:
        self._is_looking = False
        self._until_s = 0.0
        self._glances = 0  # since the last request
        self._found = 0  # requests of this look that came when the loop would have been asleep
        self._futile = 0  # looks in a row that were not worthwhile
        self._to_skip = 0  # requests before it is tried again

    def served(self, now_s: float) -> bool:
        """Requests have been served. Whether to begin looking, that is to ask `looks_on` until it says no."""
        if self._is_looking:
            self._found += self._glances > 1  # at the first glance it was there already
        elif self._to_skip:
            self._to_skip -= 1
            return False
        self._glances = 0
        self._until_s = now_s + LOOK_S
        begins, self._is_looking = not self._is_looking, True
        return begins

    def looks_on(self, now_s: float) -> bool:
        """The loop has glanced at its sockets: whether it should again, at once."""
        self._glances += 1
        if now_s < self._until_s:
            return True
        self._futile = 0 if self._found >= WORTHWHILE else min(self._futile + 1, MAX_FUTILE)
        self._to_skip = 2**self._futile - 1
        self._found = 0
        self._is_looking = False
        return False
