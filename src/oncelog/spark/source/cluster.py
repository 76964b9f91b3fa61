"""What the brokers say: which partitions there are, and where their logs begin and end.

A thin shell over `Admin`, whose connections it keeps until it is closed. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from uuid import UUID

from oncelog.admin.admin import Admin
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET
from oncelog.errors import UnknownTopicOrPartition
from oncelog.spark.reaching import reached
from oncelog.spark.source import bounds
from oncelog.spark.source.bounds import Bound
from oncelog.spark.source.losses import LogBounds
from oncelog.spark.source.offsets import Offsets
from oncelog.spark.source.selection import Assign, Selection, SubscribePattern
from oncelog.spark.source.settings import SourceSettings
from oncelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Layout:
    """The part of a selection that is there."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, UUID]
    missing: tuple[str, ...]
    """Topics and partitions that the query names, and that do not exist."""


class Cluster:
    def __init__(self, settings: SourceSettings, *, is_patient: bool = False) -> None:
        """A patient one waits for a broker that is being started."""
        self._admin = reached(settings.admin) if is_patient else Admin(settings.admin)
        self._isolation_level = settings.isolation_level

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close()

    # --- what there is ------------------------------------------------------------------------------------------------

    def layout(self, selection: Selection) -> Layout:
        if isinstance(selection, SubscribePattern):
            found = {topic.name: topic for topic in self._admin.list_topics()}
            return self._layout(selection.matching(found))
        layout = self._layout(selection.topics)
        if not isinstance(selection, Assign):
            return layout
        absent = tuple(map(str, sorted(selection.partitions - layout.partitions)))
        return Layout(layout.partitions & selection.partitions, layout.topic_ids, absent)

    def _layout(self, topics: Iterable[str]) -> Layout:
        partitions: set[TopicPartition] = set()
        topic_ids: dict[str, UUID] = {}
        missing = []
        for name in topics:
            try:
                topic = self._admin.describe_topic(name)
            except UnknownTopicOrPartition:
                missing.append(name)
                continue
            topic_ids[name] = topic.topic_id
            partitions |= {TopicPartition(name, one.index) for one in topic.partitions}
        return Layout(frozenset(partitions), topic_ids, tuple(missing))

    # --- offsets ------------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._known(dict.fromkeys(partitions, EARLIEST_OFFSET))

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Under read_committed: the last stable offset."""
        return self._known(dict.fromkeys(partitions, LATEST_OFFSET))

    def at(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Of each partition's first record at or after a moment; None where there is none."""
        if not specs:
            return {}
        found = self._admin.list_offsets(specs, isolation_level=self._isolation_level)
        return {partition: one.offset if one.offset >= 0 else None for partition, one in found.items()}

    def settle(self, bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
        """The offsets that a bound means. Raises BadOption, NoRecordThatYoung."""
        places = bound.places(partitions)
        found = self.at(bounds.questions(places))
        too_young = [partition for partition, offset in found.items() if offset is None]
        return bounds.settle(bound, places, found, self.latest(too_young))

    def log_bounds(self, partition: TopicPartition) -> LogBounds | None:
        """None if the partition does not exist."""
        if partition not in self._layout([partition.topic]).partitions:
            return None
        return LogBounds(self.earliest([partition])[partition], self.latest([partition])[partition])

    def _known(self, specs: Mapping[TopicPartition, int]) -> Offsets:
        return {partition: offset or 0 for partition, offset in self.at(specs).items()}
