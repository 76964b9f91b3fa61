"""What was lost between two topics: ids that the one holds and the other does not."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from oncelog.audit.account import MAX_GAPS
from oncelog.spark.audit.judging import first_of_each


def compared(sent: DataFrame, stored: DataFrame) -> DataFrame:
    """Each id with the lowest partition that has it, in the one topic and in the other; null where none has."""
    sides = sent.select("stream", "number", F.col("partition").alias("promised"), F.lit(None).cast("int").alias("home"))
    sides = sides.union(
        stored.select("stream", "number", F.lit(None).cast("int").alias("promised"), F.col("partition").alias("home"))
    )
    return (
        sides.where("stream IS NOT NULL")
        .groupBy("stream", "number")
        .agg(F.min("promised").alias("promised"), F.min("home").alias("home"))
        .withColumn("is_lost", F.col("promised").isNotNull() & F.col("home").isNull())
    )


def streams_of(ids: DataFrame) -> DataFrame:
    """Each stream that was sent: how many records, how many are lost, and the partition that is told so.

    That is the one that holds the lowest of its numbers (`is_stored`), or the one it was sent to if all are lost."""
    lowest = F.min(F.when(F.col("home").isNotNull(), F.struct("number", "home")))["home"]
    return (
        ids.groupBy("stream")
        .agg(
            F.min("promised").alias("promised"),
            lowest.alias("home"),
            F.count("promised").alias("sent"),
            F.count_if("is_lost").alias("lost"),
        )
        .where("sent > 0")
        .select(
            "stream",
            F.col("home").isNotNull().alias("is_stored"),
            F.coalesce("home", "promised").alias("partition"),
            "sent",
            "lost",
        )
    )


def losses(streams: DataFrame) -> DataFrame:
    """How many records were sent, and lost, by the partition that is told so."""
    return streams.groupBy("is_stored", "partition").agg(F.sum("sent").alias("sent"), F.sum("lost").alias("lost"))


def gaps(ids: DataFrame, streams: DataFrame) -> DataFrame:
    """The first ranges of lost numbers, by the partition that is told so."""
    in_row = F.row_number().over(Window.partitionBy("stream").orderBy("number"))
    ranges = (
        ids.where("is_lost")
        .withColumn("run", F.col("number") - in_row)
        .groupBy("stream", "run")
        .agg(F.min("number").alias("number"), F.max("number").alias("last"))
    )
    placed = ranges.join(streams.select("stream", "is_stored", "partition"), "stream")
    return first_of_each(["is_stored", "partition"], placed, ["stream", "number"], MAX_GAPS)
