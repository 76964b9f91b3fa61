"""Queries in the session that all tests of a process share: no JVM has to start for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from oncelog.spark import register
from tests.spark.support.driver_main import start

LIMIT_S = 200


class SessionRunner:
    def __init__(self, spark: SparkSession) -> None:
        register(spark)
        self.spark = spark
        self._query: StreamingQuery | None = None

    def run(self, plan: Mapping[str, Any]) -> str:
        self._query = start(self.spark, dict(plan))
        return self._query.id

    def outcome(self) -> str | None:
        assert self._query is not None
        try:
            has_ended = self._query.awaitTermination(LIMIT_S)
        except StreamingQueryException as error:
            return str(error)
        assert has_ended, f"the query runs for {LIMIT_S} s already: {self._query.status}"
        return None

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
