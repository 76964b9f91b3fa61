"""Python's garbage collector, kept from holding up the loop: no pass walks through more than some 40,000 objects.

A full pass walks through everything that lives, and holds every thread meanwhile: a tenth of a second for the objects
of ten thousand logs and as many groups. Nearly all of them are freed by their counts, without any pass. So what has
survived a full pass is frozen as soon as it is much: no pass looks at it again, and its counts free it as before.

What is frozen and becomes garbage in circles is not noticed any more. That is bounded: when twice as much memory is in
use as when everything was looked at the last time, that is done once more, in a quiet moment (`tidy`).

Owns when to freeze and when to look at everything. Knows the collector only as the functions of `gc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

OLDEST: Final = 2

MAX_KEPT: Final = 10_000
"""Objects that may survive a full pass and be walked through by the next one as well."""

FULL_AFTER: Final = 1
"""Passes through the middle generation, one more of which is a full one, if what lives has grown by a quarter: some
fifteen thousand new objects, with Python's own thresholds for the others. A full pass walks through those, what was
kept and what is young: a few milliseconds."""

MIN_BLOCKS: Final = 4_000_000
"""Pieces of memory in use before everything is looked at once more, which takes some hundred milliseconds: 250 MB,
twice what 10,000 partitions and 20,000 groups need. Later it is twice what was in use after the last time."""

OVERDUE: Final = 2
"""Where no quiet moment comes: how much more than that may be in use before one is not waited for."""


class Heap(Protocol):
    """The functions of `gc` that are used here."""

    def get_threshold(self) -> tuple[int, int, int]: ...

    def set_threshold(self, young: int, middle: int, oldest: int, /) -> None: ...

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...

    def collect(self) -> int: ...

    def get_objects(self, generation: int | None = None) -> list[Any]: ...


class Collector:
    def __init__(self, heap: Heap, blocks_in_use: Callable[[], int]) -> None:
        self._heap = heap
        self._blocks_in_use = blocks_in_use
        self._limit = MIN_BLOCKS
        self._is_in_hand = False
        self._last_served = -1

    def begin(self) -> None:
        """What lives now lives until the end."""
        self._is_in_hand = True  # the passes are ours
        self._heap.set_threshold(*self._heap.get_threshold()[:2], FULL_AFTER)
        self._heap.collect()
        self._heap.freeze()
        self._heap.collect()  # of nothing: else the next pass would come when there is a quarter of all this, anew
        self._is_in_hand = False
        self._limit = max(MIN_BLOCKS, 2 * self._blocks_in_use())

    def passed(self, phase: str, info: Mapping[str, Any]) -> None:
        """For `gc.callbacks`. May come in any thread, in the middle of anything."""
        if phase != "stop" or info["generation"] != OLDEST or self._is_in_hand:
            return
        if len(self._heap.get_objects(generation=OLDEST)) > MAX_KEPT:
            self._heap.freeze()

    def tidy(self, served: int) -> None:
        """To be called every second. `served` is how many requests there were so far: a quiet moment comes after a
        second without any."""
        is_quiet, self._last_served = served == self._last_served, served
        in_use = self._blocks_in_use()
        if in_use > (self._limit if is_quiet else OVERDUE * self._limit):
            self._heap.unfreeze()
            self.begin()
