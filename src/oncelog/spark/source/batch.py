"""The batch reader: a range per partition, from where the options say to where the logs end when the query is planned.

A thin shell over the cluster. Filters on topic, partition, offset and timestamp make the ranges shorter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from oncelog.spark.source import losses
from oncelog.spark.source.cluster import Cluster
from oncelog.spark.source.partition import RangePartition
from oncelog.spark.source.pruning import Pruning, pruning_of, young_enough
from oncelog.spark.source.ranges import OffsetRange, split
from oncelog.spark.source.settings import SourceSettings
from oncelog.spark.source.stream import existing, tell

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""What Spark plans with if `spark.sql.python.filterPushdown.enabled` is on, and the query has filters."""


def filters_are_pushed() -> bool:
    return PUSHING_WORKER in sys.modules


class BatchReader(DataSourceReader):
    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._settings, is_patient=True) as cluster:
            ranges = self._ranges(cluster)
        return [RangePartition(one) for one in split(ranges, self._settings.splitting)]

    def _ranges(self, cluster: Cluster) -> list[OffsetRange]:
        settings, pruning = self._settings, self._pruning
        partitions = existing(cluster.layout(settings.selection)).partitions
        start = cluster.settle(settings.start, partitions)
        end = cluster.settle(settings.end, partitions)
        first, last = cluster.earliest(partitions), cluster.latest(partitions)
        tell(losses.outside(start, first, last), settings)
        tell(losses.outside(end, first, last, is_end=True), settings)
        ranges = [
            pruning.cut(OffsetRange(one, max(start[one], first[one]), min(end[one], last[one])))
            for one in sorted(partitions)
            if pruning.wants(one)
        ]
        if pruning.not_before_ms is None:
            return ranges
        return young_enough(ranges, cluster.at({one.partition: pruning.not_before_ms for one in ranges}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from oncelog.spark.source.reading import read_range

        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in where there is nothing to read
        return read_range(self._settings, partition.range)


class FilteringBatchReader(BatchReader):
    """Only where `filters_are_pushed`: Spark refuses a reader that takes filters while pushing them is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._pruning, remaining = pruning_of(filters)
        return remaining
