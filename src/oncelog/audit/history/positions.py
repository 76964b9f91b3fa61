"""Each process's way through each partition: its polls and its sends go forward, and leave nothing out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from oncelog.audit.history.model import Operation, Records, Value
from oncelog.audit.history.picture import Picture
from oncelog.audit.history.report import Findings, Kind
from oncelog.types import NO_OFFSET, TopicPartition

Way = tuple[str, TopicPartition]


class Positions:
    def __init__(self, picture: Picture, findings: Findings) -> None:
        self._picture = picture
        self._findings = findings
        self._polled: dict[Way, int] = {}
        self._sent: dict[Way, int] = {}
        # Places from, up to which nobody polled anything in between: mostly markers and aborted records, which are
        # the same for all readers.
        self._gaps: dict[tuple[int, int], str] = {}

    def observe(self, operation: Operation) -> None:
        for partition in operation.moved:
            self._polled.pop((operation.process, partition), None)
        for records in operation.polls:
            self._follow_polls(operation, records)
        for records in operation.sends:
            self._follow_sends(operation, records)

    def judge_gaps(self, aborted: Collection[Value]) -> None:
        """Find what readers went past although others read it; that aborted records are left out is right."""
        picture = self._picture
        places = picture.places()
        for (first, end), reader in self._gaps.items():
            for place in places[bisect_left(places, first) : bisect_left(places, end)]:
                value = picture.value_at(place)
                if value in picture.visible and value not in aborted:
                    self._findings.add(Kind.POLL_SKIP, f"{reader} was not given {value!r} at {picture.name(place)}")

    def _follow_polls(self, operation: Operation, records: Records) -> None:
        way = (operation.process, records.partition)
        last = self._polled.get(way)
        base = self._picture.base(records.partition)
        for offset in records.offsets:
            if last is not None and offset != last + 1:
                if offset <= last:
                    self._findings.add(
                        Kind.NONMONOTONIC_POLL, f"{operation} was given offset {offset} of {way[1]} after {last}"
                    )
                elif (gap := (base + last + 1, base + offset)) not in self._gaps:
                    self._gaps[gap] = str(operation)
            last = offset
        if last is not None:
            self._polled[way] = last

    def _follow_sends(self, operation: Operation, records: Records) -> None:
        way = (operation.process, records.partition)
        last = self._sent.get(way, NO_OFFSET)
        for value, offset in zip(records.values, records.offsets, strict=True):
            if offset == NO_OFFSET:
                continue
            if offset <= last:
                self._findings.add(
                    Kind.NONMONOTONIC_SEND,
                    f"{value!r} of {operation} was stored at offset {offset} of {way[1]}, an earlier one at {last}",
                )
            last = offset
        self._sent[way] = last
