"""A driver as users write it, in a process that tests may kill: `python -m tests.spark.support.driver_main SETTINGS`.

Reads commands from its input, one JSON object a line, and answers on its output likewise. The end of the input is the
end of the driver.

    {"run": {...}}     starts a query: {"query": ID}        {"await": true}    waits for its end: {"ended": true}
    {"poll": true}     {"running": whether it is}           {"stop": true}     stops it
    {"look": N}        what N tasks that run at the same time see around them

Whatever fails is answered with {"failed": why}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import rand
from pyspark.sql.streaming import StreamingQuery

from oncelog.spark import register
from tests.spark.support.starting import started


def transformed(frame: DataFrame, plan: dict[str, Any]) -> DataFrame:
    """Key and value as they are; which slot has which rows is the plan's."""
    wanted = frame.where(plan.get("where", "true"))
    rows = wanted.select("key", "value")
    match plan.get("slots"):
        case None:
            return rows
        case {"by_key": count}:
            return rows.repartition(count, "key")
        case {"by_partition": count}:  # rows stay in the partition that they come from
            return wanted.select("key", "value", "partition").repartition(count, "partition")
        case {"at_random": count}:  # each start of the query has another seed
            return rows.repartition(count, rand())
        case unknown:
            raise ValueError(f"slots: {unknown}")


def start(spark: SparkSession, plan: dict[str, Any]) -> StreamingQuery:
    stream = spark.readStream.format("oncelog").options(**plan["source"]).load()
    writer = transformed(stream, plan).writeStream.format("oncelog").options(**plan["sink"])
    interval = plan.get("every")
    trigger = {"availableNow": True} if interval is None else {"processingTime": interval}
    return started(writer.trigger(**trigger).start)


def outcome(query: StreamingQuery) -> dict[str, Any]:
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return {"failed": str(error)}
    return {"ended": True}


def look_around(_: int) -> dict[str, Any]:
    """Runs in a task, and needs nothing but what is there."""
    import os
    import sys

    import oncelog
    from oncelog.records import kernel

    home = os.environ.get("SPARK_LOCAL_IP")
    return {"host": home, "python": sys.executable, "oncelog": oncelog.__file__, "native": kernel.NATIVE}


def serve(spark: SparkSession) -> None:
    query: StreamingQuery | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "run" in command:
                query = start(spark, command["run"])
                answer = {"query": query.id}
            elif "await" in command:
                assert query is not None
                answer = outcome(query)
            elif "poll" in command:
                answer = {"running": query is not None and query.isActive}
            elif "look" in command:
                # A barrier's tasks are started all at once, each in a place of its own, and none of them a second time
                # by speculation.
                numbers = spark.sparkContext.parallelize(range(command["look"]), command["look"]).barrier()
                answer = {"seen": numbers.mapPartitions(lambda some: map(look_around, some)).collect()}
            else:
                assert query is not None
                query.stop()
                answer = {"stopped": True}
        except PySparkException as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)


def main(settings: dict[str, str]) -> None:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    print(json.dumps({"ready": True}), flush=True)
    serve(spark)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
