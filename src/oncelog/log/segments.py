"""The segments of one partition in offset order.

Owns the order, and which segment holds an offset. The last one is active: it grows, all others are sealed. It changes
no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from oncelog.log.segment import Segment


class Segments:
    __slots__ = ("_base_offsets", "_segments", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._set(sorted(segments, key=lambda segment: segment.base_offset))

    def _set(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._base_offsets)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def end_offset(self, segment: Segment, log_end_offset: int) -> int:
        """The offset that follows the segment: where the next one begins, or the end of the log."""
        following = bisect_right(self._base_offsets, segment.base_offset)
        return self._base_offsets[following] if following < len(self._segments) else log_end_offset

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset`, and all after it."""
        if offset >= self.active.base_offset:
            return [self.active]
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset, "a new segment follows the active one"
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        gone = set(old)
        kept = [segment for segment in self._segments if segment not in gone]
        self._set(sorted([*kept, *new], key=lambda segment: segment.base_offset))

    def remove(self, segments: Iterable[Segment]) -> None:
        self.replace(segments, ())
