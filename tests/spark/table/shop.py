"""A stream of orders: each file of a folder is a batch, and a table takes them.

`python -m tests.spark.table.shop SETTINGS FOLDER OPTIONS` is a driver that writes what is there, for tests to kill.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from oncelog.spark.table import OncelogTable

SCHEMA = "id bigint, version bigint, state string"
LIMIT_S = 200
LONG_AGO_S = 1_700_000_000


class Shop:
    """A folder of files, each a batch of the stream that reads it."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.inbox, self.checkpoint = folder / "inbox", folder / "checkpoint"
        self.inbox.mkdir(exist_ok=True)
        self.options = {"checkpointLocation": str(self.checkpoint), "create": "true", **options}

    def put(self, *rows: tuple[int, int, str]) -> None:
        number = len(list(self.inbox.iterdir()))
        lines = [json.dumps({"id": row[0], "version": row[1], "state": row[2]}) for row in rows]
        path = self.inbox / f"{number:03}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (LONG_AGO_S + number,) * 2)  # Spark reads files in the order of their times

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.inbox))

    def start(self, frame: DataFrame | None = None, mode: str = "append", **options: str) -> StreamingQuery:
        writer = (self.stream() if frame is None else frame).writeStream.format("oncelog.table").outputMode(mode)
        given = {**self.options, **{name.replace("_", "."): value for name, value in options.items()}}
        return writer.options(**given).trigger(availableNow=True).start()

    def run(self, frame: DataFrame | None = None, mode: str = "append", **options: str) -> None:
        assert self.start(frame, mode, **options).awaitTermination(LIMIT_S)

    def forget_last_commit(self) -> int:
        """As if the driver had died after the batch was published, before Spark noted it."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return last


def main(settings: dict[str, str], folder: str, options: dict[str, str]) -> None:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(OncelogTable)
    Shop(spark, Path(folder), **options).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
