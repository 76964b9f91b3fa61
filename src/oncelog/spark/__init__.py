"""Exactly-once pipelines on Spark, through PySpark's Python Data Source API: no JAR.

    from oncelog.spark import register
    register(spark)                      # the formats "oncelog" and "oncelog.table"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make oncelog's data sources known to a session."""
    from oncelog.spark.datasource import OncelogSource
    from oncelog.spark.table import OncelogTable

    spark.dataSource.register(OncelogSource)
    spark.dataSource.register(OncelogTable)
