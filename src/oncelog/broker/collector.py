"""Python's garbage collector, kept from holding up the loop: a pass walks through no more than some 40,000 objects and
what was made since the last look.

A full pass walks through everything that lives, and holds every thread meanwhile: a tenth of a second for the objects
of ten thousand logs and as many groups. Nearly all of them are freed by their counts, without any pass. So what has
survived a full pass is frozen as soon as it is much: no pass looks at it again, and its counts free it as before.

What is frozen and becomes garbage in circles is not noticed any more. That is bounded: when twice as much memory is in
use as when everything was looked at the last time, that is done once more, in a quiet moment.

It looks at what the collector did now and then, and is not called by it (`gc.callbacks`): a pass may begin at any
allocation of any thread, in the middle of `list(shared.items())`, and Python code there would let another thread change
what is being copied.

Owns when to freeze and when to look at everything. Knows the collector only as the functions of `gc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

OLDEST: Final = 2

LOOKS_PER_SECOND: Final = 5

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

    def get_stats(self) -> list[dict[str, int]]: ...


class Collector:
    def __init__(self, heap: Heap, blocks_in_use: Callable[[], int]) -> None:
        self._heap = heap
        self._blocks_in_use = blocks_in_use
        self._limit = MIN_BLOCKS
        self._passes = 0
        self._looks = 0
        self._last_served = -1

    def begin(self) -> None:
        """What lives now lives until the end."""
        self._heap.set_threshold(*self._heap.get_threshold()[:2], FULL_AFTER)
        self._heap.collect()
        self._heap.freeze()
        self._heap.collect()  # of nothing: else the next pass would come when there is a quarter of all this, anew
        self._passes = self._full_passes()
        self._limit = max(MIN_BLOCKS, 2 * self._blocks_in_use())

    def look(self, served: int) -> None:
        """To be called `LOOKS_PER_SECOND`. `served` is how many requests there were so far."""
        passes = self._full_passes()
        if passes != self._passes:
            self._passes = passes
            if len(self._heap.get_objects(generation=OLDEST)) > MAX_KEPT:
                self._heap.collect()  # nothing that is garbage by now may stay: it may hold descriptors
                self._heap.freeze()
                self._passes = self._full_passes()
        self._looks += 1
        if self._looks % LOOKS_PER_SECOND == 0:
            self._tidy(served)

    def _full_passes(self) -> int:
        return self._heap.get_stats()[OLDEST]["collections"]

    def _tidy(self, served: int) -> None:
        """Every second; a quiet moment comes after one without any request."""
        is_quiet, self._last_served = served == self._last_served, served
        in_use = self._blocks_in_use()
        if in_use > (self._limit if is_quiet else OVERDUE * self._limit):
            self._heap.unfreeze()
            self.begin()
