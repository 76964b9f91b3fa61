"""What becomes of each record: the rules of `oncelog.audit.account` as windows over streams.

All windows share one exchange, by stream. Copies of a number are told apart by partition and offset: the first is the
record, the others are duplicates, as they are to a reader who takes one partition after the other.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from oncelog.audit.account import MAX_EXAMPLES, MAX_GAPS
from oncelog.audit.spread import Bins

SILENT_TOGETHER = 100_000
"""Records without an id belong to no stream. By offsets they are dealt out, so that no task gets them all."""

WHOLE = "decimal(38,0)"
"""Numbers have 18 digits: their sums do not fit into a long."""


def judged(ids: DataFrame, truncated: Collection[int]) -> DataFrame:
    """Each record with what is to be said about it. In `truncated` partitions the head was removed by retention."""
    share = F.when(F.col("stream").isNull(), F.expr(f"offset div {SILENT_TOGETHER}L"))
    by_stream = Window.partitionBy("stream", "share")
    by_number = by_stream.orderBy("number", "partition", "offset")
    so_far = by_number.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = (
        Window.partitionBy("stream", "share", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    numbered = (
        ids.withColumn("share", share)
        .withColumn("previous", F.lag("number").over(by_number))
        .withColumn("home", F.first("partition").over(so_far))
        .withColumn("duplicated", _is_true(F.col("previous") == F.col("number")))
        .withColumn("missing", _missing(truncated))
    )
    highest = F.max(F.when(~F.col("duplicated"), F.col("number"))).over(before)
    late = ~F.col("duplicated") & _is_true(F.col("highest") > F.col("number"))
    return numbered.withColumn("highest", highest).withColumn("late", late)


def _missing(truncated: Collection[int]) -> Column:
    """How many numbers are missing right before a record's own."""
    first = F.when(F.col("home").isin(list(truncated)), F.lit(0)).otherwise(F.col("number"))
    gap = F.when(F.col("previous").isNull(), first).otherwise(F.col("number") - F.col("previous") - 1)
    return F.greatest(F.coalesce(gap, F.lit(0)), F.lit(0)).cast("bigint")


def _is_true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def counts(records: DataFrame, bins: Bins) -> DataFrame:
    """What a partition holds, by (partition, bin), and what the streams sent that begin there, by home (`is_home`)."""
    place = F.expr(f"least(greatest((offset - {bins.first}L) div {bins.width}L, 0L), {bins.count - 1}L)")
    has_id = F.col("stream").isNotNull()
    return (
        records.withColumn("bin", place.cast("int"))
        .groupingSets([["partition", "bin"], ["home"]], "partition", "bin", "home")
        .agg(
            F.grouping("partition").cast("boolean").alias("is_home"),
            F.count_if(has_id).alias("stored"),
            F.count_if(~has_id).alias("unnumbered"),
            F.count_if("duplicated").alias("duplicated"),
            F.count_if("late").alias("out_of_order"),
            F.count_if(has_id & ~F.col("duplicated")).alias("distinct"),
            F.sum(F.col("missing").cast(WHOLE)).alias("lost"),
        )
    )


def findings(records: DataFrame) -> DataFrame:
    """The first of each partition: duplicates and late records by offset, and gaps, which have none, by stream."""
    wrong = F.struct("partition", "offset", "stream", "number", "highest", "duplicated", F.lit(None).alias("last"))
    gap = F.struct(
        F.col("home").alias("partition"),
        F.lit(None).alias("offset"),
        "stream",
        (F.col("number") - F.col("missing")).alias("number"),
        F.lit(None).alias("highest"),
        F.lit(False).alias("duplicated"),
        (F.col("number") - 1).alias("last"),
    )
    both = F.array(
        F.when(F.col("duplicated") | F.col("late"), wrong),
        F.when(F.col("missing") > 0, gap),
    )
    found = records.where("duplicated OR late OR missing > 0").select(F.explode(F.array_compact(both)).alias("found"))
    rows = found.select("found.*").withColumn("is_gap", F.col("offset").isNull())
    return first_of_each(["partition", "is_gap"], rows, ["offset", "stream", "number"], max(MAX_EXAMPLES, MAX_GAPS))


def first_of_each(group: list[str], rows: DataFrame, order: list[str], limit: int) -> DataFrame:
    """At most `limit` rows of each group."""
    rank = F.row_number().over(Window.partitionBy(*group).orderBy(*order))
    return rows.withColumn("rank", rank).where(F.col("rank") <= limit).drop("rank")
