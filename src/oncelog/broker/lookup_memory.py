"""What was found in compressed batches by timestamp, so that the same question does not decompress them again.

Owns a bounded number of answers; the one unused for longest goes first. The key of an answer is made of what the batch
says of itself, its checksum included, so no answer is given for a batch that has come into another's place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MAX_REMEMBERED: Final = 1024
"""Some hundred kilobytes. Who looks up all partitions of a large topic by one time, again and again, is served."""

Found = tuple[int, int] | None
"""Timestamp and offset of a record."""


class LookupMemory:
    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, Found] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._found

    def __getitem__(self, key: Hashable) -> Found:
        self._found.move_to_end(key)
        return self._found[key]

    def remember(self, key: Hashable, found: Found) -> None:
        self._found[key] = found
        self._found.move_to_end(key)
        if len(self._found) > MAX_REMEMBERED:
            self._found.popitem(last=False)
