"""What became of each operation that wrote: all of a committed one can be read, and nothing of a failed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oncelog.audit.history.model import Operation, Outcome, Records, Value
from oncelog.audit.history.picture import SPAN, Picture
from oncelog.audit.history.report import Findings, Kind
from oncelog.types import TopicPartition


def fate(operation: Operation, picture: Picture) -> Outcome:
    """Its outcome, or what readers show of a transaction whose process was not told."""
    if operation.outcome is not Outcome.UNKNOWN or not operation.is_transaction or not operation.sends:
        return operation.outcome
    if any(not picture.visible.isdisjoint(records.values) for records in operation.sends):
        return Outcome.OK
    is_all_read = all(records.partition in picture.drained for records in operation.sends)
    return Outcome.FAILED if is_all_read else Outcome.UNKNOWN


class Fates:
    """Judges the operations that sent something, when the whole history is known."""

    def __init__(self, picture: Picture, findings: Findings) -> None:
        self._picture = picture
        self._findings = findings
        self.aborted_but_visible: set[Value] = set()
        self.unseen: Counter[TopicPartition] = Counter()

    def judge(self, operation: Operation) -> None:
        outcome = fate(operation, self._picture)
        if outcome is Outcome.FAILED:
            self._judge_failed(operation)
        elif outcome is Outcome.OK:
            self._judge_committed(operation)
        for records in operation.sends:
            self._judge_partition(operation, records)

    def _judge_failed(self, operation: Operation) -> None:
        visible = self._picture.visible
        for records in operation.sends:
            if visible.isdisjoint(records.values):
                continue
            for value in visible.intersection(records.values):
                self.aborted_but_visible.add(value)
                self._findings.add(
                    Kind.ABORTED_READ,
                    f"{value!r} of {operation} can be read at {self._picture.name(self._picture.place_of[value])}",
                )

    def _judge_committed(self, operation: Operation) -> None:
        picture = self._picture
        if all(picture.visible.issuperset(records.values) for records in operation.sends):
            return
        is_promised = operation.outcome is Outcome.OK
        hidden: list[Value] = []
        for partition, value in self._not_visible(operation):
            is_seen = value in picture.glimpsed  # and not in visible
            if is_promised and not is_seen and picture.was_passed(value, partition, by_committed_readers=False):
                self._findings.add(Kind.LOST_WRITE, f"{value!r} of {operation}, {self._where(value, partition)}")
            elif is_promised and not is_seen:
                self.unseen[partition] += 1
            if picture.was_passed(value, partition, by_committed_readers=True):
                hidden.append(value)
        self._judge_torn(operation, hidden)

    def _judge_torn(self, operation: Operation, hidden: list[Value]) -> None:
        if not operation.is_transaction or not hidden:
            return
        shown = [value for records in operation.sends for value in records.values if value in self._picture.visible]
        if shown:
            total = sum(len(records.values) for records in operation.sends)
            self._findings.add(
                Kind.TORN_TRANSACTION,
                f"{len(shown)} of {total} records of {operation} can be read, {shown[0]!r} for one, and "
                f"{len(hidden)} cannot, {hidden[0]!r} for one",
            )

    def _judge_partition(self, operation: Operation, records: Records) -> None:
        picture = self._picture
        base = picture.base(records.partition)
        places = [place for place in map(picture.place_of.get, records.values) if place is not None]
        if not places or base <= min(places) <= max(places) < base + SPAN:
            return
        for place in places:
            if not base <= place < base + SPAN:
                value = picture.value_at(place)
                self._findings.add(
                    Kind.PHANTOM,
                    f"{value!r} of {operation} went to {records.partition} and is at {picture.name(place)}",
                )

    def _not_visible(self, operation: Operation) -> Iterator[tuple[TopicPartition, Value]]:
        for records in operation.sends:
            for value in records.values:
                if value not in self._picture.visible:
                    yield records.partition, value

    def _where(self, value: Value, partition: TopicPartition) -> str:
        place = self._picture.place_of.get(value)
        return f"sent to {partition}" if place is None else f"acknowledged at {self._picture.name(place)}"
