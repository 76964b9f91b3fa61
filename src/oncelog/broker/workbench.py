"""Requests that name much are served here, one in each round of the loop, and long answers made, in slices.

Owns whose turn it is: one after the other, in the order in which they were asked for, so that only one of them holds
what is made so far. Never knows what is made, nor a clock: a step ends by itself after `SLICE_S`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

SLICE_S = 0.005
"""How long a step may take before the loop sees its other clients again."""

Step = Callable[[], bool]
"""Works for a while; whether there is more to do. Not if it raises, which is a bug of its own."""


class Workbench:
    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Step] = deque()
        self._is_at_it = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, step: Step, *, goes_on: bool = False) -> None:
        """`goes_on`: it comes of the step that is under way, and is next: who has begun ends before others begin, for
        what was made so far takes memory."""
        if goes_on and self._is_at_it:
            self._waiting.insert(1, step)
            return
        self._waiting.append(step)
        if len(self._waiting) == 1:
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._is_at_it = True
        try:
            goes_on = self._waiting[0]()
        except Exception:
            logger.exception("bug: a step at the workbench failed")
            goes_on = False
        self._is_at_it = False
        if not goes_on:
            self._waiting.popleft()
        if self._waiting:
            self._call_soon(self._turn)
