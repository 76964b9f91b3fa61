"""The log as a history shows it: which value stands where, and who has seen it. Knows nothing of transactions.

A place is one number for partition and offset, so that a history of a million records is checked with a few large
dicts and sets, and mostly by operations on whole runs of records.
"""

from __future__ import annotations

from oncelog.audit.history.model import Operation, Records, Value
from oncelog.audit.history.report import Findings, Kind
from oncelog.types import NO_OFFSET, TopicPartition

SPAN = 1 << 48
"""Places of one partition: more than any log has offsets."""


class Picture:
    def __init__(self, findings: Findings) -> None:
        self.place_of: dict[Value, int] = {}
        self.visible: set[Value] = set()
        """Seen by a reader that sees only what is committed."""
        self.glimpsed: set[Value] = set()
        """Seen by a reader that sees all."""
        self.drained: set[TopicPartition] = set()
        self._value_at: dict[int, Value] = {}
        self._partitions: dict[TopicPartition, int] = {}
        self._names: list[TopicPartition] = []
        self._highest: dict[tuple[TopicPartition, bool], int] = {}
        self._findings = findings

    def observe(self, operation: Operation) -> None:
        self.drained.update(operation.drained)
        for records in operation.sends:
            self._place(records, operation)
        for records in operation.polls:
            self._place(records, operation)
            (self.visible if operation.reads_committed else self.glimpsed).update(records.values)
            key = (records.partition, operation.reads_committed)
            self._highest[key] = max(self._highest.get(key, NO_OFFSET), max(records.offsets, default=NO_OFFSET))

    def base(self, partition: TopicPartition) -> int:
        """The place of the partition's offset 0."""
        index = self._partitions.get(partition)
        if index is None:
            index = self._partitions[partition] = len(self._names)
            self._names.append(partition)
        return index * SPAN

    def name(self, place: int) -> str:
        return f"offset {place % SPAN} of {self._names[place // SPAN]}"

    def partition_at(self, place: int) -> TopicPartition:
        return self._names[place // SPAN]

    def value_at(self, place: int) -> Value:
        return self._value_at[place]

    def was_passed(self, value: Value, partition: TopicPartition, *, by_committed_readers: bool) -> bool:
        """Whether a reader was given a later record of the partition, or all there is."""
        if partition in self.drained:
            return True
        place = self.place_of.get(value)
        if place is None:
            return False
        highest = self._highest.get((partition, True), NO_OFFSET)
        if not by_committed_readers:
            highest = max(highest, self._highest.get((partition, False), NO_OFFSET))
        return place < self.base(partition) + highest

    def places(self) -> list[int]:
        """All that are known, in order."""
        return sorted(self._value_at)

    def _place(self, records: Records, operation: Operation) -> None:
        base = self.base(records.partition)
        places = [base + offset for offset in records.offsets]
        known = list(map(self.place_of.get, records.values))
        if known != places and not self._place_new(records, places, known):
            self._place_each(records, places, operation)

    def _place_new(self, records: Records, places: list[int], known: list[int | None]) -> bool:
        """A run of which nothing was known; False if anything was, or if it contradicts itself."""
        is_new = known.count(None) == len(known) and NO_OFFSET not in records.offsets
        if not is_new or not self._value_at.keys().isdisjoint(places):
            return False
        expected = len(self.place_of) + len(places), len(self._value_at) + len(places)
        self.place_of.update(zip(records.values, places, strict=True))
        self._value_at.update(zip(places, records.values, strict=True))
        return expected == (len(self.place_of), len(self._value_at))

    def _place_each(self, records: Records, places: list[int], operation: Operation) -> None:
        for value, offset, place in zip(records.values, records.offsets, places, strict=True):
            if offset == NO_OFFSET:
                continue
            first_place = self.place_of.setdefault(value, place)
            if first_place != place:
                self._findings.add(
                    Kind.DUPLICATE,
                    f"{value!r} is at {self.name(first_place)} and, {operation} says, at {self.name(place)}",
                )
            first_value = self._value_at.setdefault(place, value)
            if first_value != value:
                self._findings.add(
                    Kind.INCONSISTENT_OFFSET,
                    f"{self.name(place)} holds {first_value!r} and, {operation} says, {value!r}",
                )
