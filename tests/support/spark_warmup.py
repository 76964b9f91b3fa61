"""What a test's session does, in small, so that a JVM has seen the classes for it: `shared_classes` runs this once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from tests.support import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 100


class WarmReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"row": ROWS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(start["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        at = pa.array([0] * ROWS, pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_pydict({"id": list(range(ROWS)), "at": at})


class WarmWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


class Warm(DataSource):
    def schema(self) -> str:
        return "id long, at timestamp"

    def streamReader(self, schema: object) -> WarmReader:  # noqa: N802
        return WarmReader()

    def streamWriter(self, schema: object, overwrite: bool) -> WarmWriter:  # noqa: N802
        return WarmWriter()


def warm_up(session: SparkSession, folder: Path) -> None:
    session.dataSource.register(Warm)
    session.range(ROWS).createOrReplaceTempView("numbers")
    joined = "select a.id as n, b.id as m from numbers a join numbers b on a.id = b.id"
    session.sql(f"select n % 3 as k, count(*), max(m) from ({joined}) group by 1").collect()
    stream = session.readStream.format("Warm").load()
    changed = stream.selectExpr(
        "cast(id as string) as key", "cast(cast(id as string) as binary) as value", "at"
    ).repartition(2)
    counted = stream.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])
    for number, frame in enumerate((changed.repartition(2), counted)):
        writer = frame.writeStream.format("Warm").option("checkpointLocation", str(folder / str(number)))
        writer.trigger(availableNow=True).start().awaitTermination()


def main(archive: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        settings = spark.local_settings(Path(name), jvm=f"-XX:ArchiveClassesAtExit={archive}")
        with spark.session(settings) as session:
            warm_up(session, Path(name))


if __name__ == "__main__":
    main(sys.argv[1])
