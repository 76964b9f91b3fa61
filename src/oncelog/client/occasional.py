"""Warnings about what goes wrong time and again, without a flood of them: one now and then, with a count of the rest.

Owns when the next one may be written. Never decides what is worth a warning.
"""

from __future__ import annotations

import logging

WARN_EVERY_MS = 10_000
"""The shortest time between two warnings about the same kind of trouble."""


class OccasionalWarning:
    """Of one kind of trouble.

    warning = OccasionalWarning(logging.getLogger(__name__))
    warning.give(now_ms, "%s was refused: %s", partition, error)
    """

    def __init__(self, logger: logging.Logger, every_ms: int = WARN_EVERY_MS, at_once: int = 1) -> None:
        """At most `at_once` of them in any `every_ms`."""
        self._logger = logger
        self._every_ms = every_ms
        self._at_once = at_once
        self._began_ms: int | None = None
        self._told = 0
        self._untold = 0

    def give(self, now_ms: int, text: str, *values: object) -> bool:
        """Write it, unless enough were written a short while ago; then the next one says how many were not."""
        if self._began_ms is None or now_ms >= self._began_ms + self._every_ms:
            self._began_ms, self._told = now_ms, 0
        if self._told >= self._at_once:
            self._untold += 1
            return False
        if self._untold:
            text, values = text + " (and %d more like this since the last warning)", (*values, self._untold)
        self._told += 1
        self._untold = 0
        self._logger.warning(text, *values)
        return True
