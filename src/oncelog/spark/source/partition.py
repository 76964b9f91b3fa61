"""A range as Spark carries it to a task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from oncelog.spark.source.ranges import OffsetRange


class RangePartition(InputPartition):
    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)

    @property
    def range(self) -> OffsetRange:
        wanted = self.value
        assert isinstance(wanted, OffsetRange)
        return wanted
