"""The stream reader: plans micro-batches in a Python process beside the driver, and reads ranges in the executors'.

A thin shell. What it keeps (connections, when the last batch was, the ids of topics) may be lost at any time: where a
query is stands in its checkpoint. Only AvailableNow's goal lives as long as the process, which is as long as the query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from oncelog.spark.options import BadOption
from oncelog.spark.source import limits, losses, offsets
from oncelog.spark.source.bounds import Kind
from oncelog.spark.source.cluster import Cluster, Layout
from oncelog.spark.source.losses import Loss
from oncelog.spark.source.offsets import Json, Offsets
from oncelog.spark.source.partition import RangePartition
from oncelog.spark.source.ranges import split
from oncelog.spark.source.settings import SourceSettings

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

MAX_LOOKS = 5
LOOK_PAUSE_S = 0.2


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._forget()

    def _forget(self) -> None:
        self._open: Cluster | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._last_batch_ms: int | None = None
        self._goal: Offsets | None = None
        self._seen: Offsets = {}

    def __getstate__(self) -> SourceSettings:
        """Executors need to know what to read; connections stay here."""
        return self._settings

    def __setstate__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._forget()

    # --- where to begin and end ---------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name, as below
        layout = existing(self._cluster.layout(self._settings.selection))
        start = self._cluster.settle(self._settings.start, layout.partitions)
        given = self._settings.start.listed
        chosen = {one: start[one] for one, place in given.items() if place.kind is Kind.OFFSET}
        if chosen:
            first, last = self._cluster.earliest(chosen), self._cluster.latest(chosen)
            tell(losses.outside(chosen, first, last), self._settings)
            start |= {one: min(max(offset, first[one]), last[one]) for one, offset in chosen.items()}
        return offsets.to_json(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._settings.max_offsets is not None:
            return ReadMaxRows(self._settings.max_offsets)
        if self._settings.patience is not None:
            return ReadMinRows(self._settings.patience.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later is for the next run."""
        self._goal = self._cluster.latest(self._cluster.layout(self._settings.selection).partitions)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Json:  # noqa: N802
        begun = offsets.from_json(start)
        end = self._end(begun)
        unread = losses.unread_starts(begun, end)
        plan = losses.planned(begun, end, self._cluster.earliest(unread))
        tell(plan.losses, self._settings)
        if isinstance(limit, ReadAllAvailable):
            return offsets.to_json(end)
        effective = {one.partition: one.start for one in plan.ranges}
        if self._waits(effective, end):
            return offsets.to_json(begun)
        if isinstance(limit, ReadMaxRows):
            end = limits.limited(limit.max_rows, effective, end)
        return offsets.to_json(end)

    def _end(self, begun: Offsets) -> Offsets:
        if self._goal is not None and begun.keys() <= self._goal.keys():
            return self._goal
        layout = self._layout(begun)
        if self._goal is not None:
            overlooked = (begun.keys() & layout.partitions) - self._goal.keys()
            self._goal |= self._cluster.latest(overlooked)
            return self._goal
        tell(losses.recreated(self._topic_ids, layout.topic_ids), self._settings)
        self._topic_ids |= layout.topic_ids
        self._seen = self._cluster.latest(layout.partitions)
        return self._seen

    def _layout(self, begun: Offsets) -> Layout:
        """A partition counts as gone when it was missed several times: one broker may lag behind the others, and a
        partition that comes back would be read from its beginning."""
        for _ in range(MAX_LOOKS - 1):
            layout = self._cluster.layout(self._settings.selection)
            if begun.keys() <= layout.partitions:
                return layout
            time.sleep(LOOK_PAUSE_S)
        return self._cluster.layout(self._settings.selection)

    def _waits(self, start: Offsets, end: Offsets) -> bool:
        """AvailableNow never waits: nothing more will come."""
        patience = self._settings.patience
        if patience is None or self._goal is not None:
            return False
        now_ms = int(time.monotonic() * 1000)
        if patience.waits(limits.available(start, end), self._last_batch_ms, now_ms):
            return True
        self._last_batch_ms = now_ms
        return False

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return offsets.to_json(self._goal or self._seen) or None

    # --- what to read -------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = offsets.from_json(start), offsets.from_json(end)
        unread = losses.unread_starts(begun, ended)
        plan = losses.planned(begun, ended, self._cluster.earliest(unread))
        tell(plan.losses, self._settings)
        return [RangePartition(one) for one in split(plan.ranges, self._settings.splitting)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from oncelog.spark.source.reading import read_range

        assert isinstance(partition, RangePartition)
        return read_range(self._settings, partition.range)

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _cluster(self) -> Cluster:
        if self._open is None:
            self._open = Cluster(self._settings, is_patient=True)
        return self._open


def existing(layout: Layout) -> Layout:
    """At the start of a query everything that it names must be there."""
    if layout.missing:
        raise BadOption(f"there is no {', '.join(layout.missing)} to read: create it first, or correct its name")
    return layout


def tell(found: Iterable[Loss], settings: SourceSettings) -> None:
    for loss in found:
        if settings.fail_on_data_loss:
            raise loss.error()
        logger.warning("%s", loss)
