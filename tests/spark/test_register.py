"""What a session knows after `register`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from oncelog.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def environment_of(spark: SparkSession, name: str) -> Any:
    """Which each streaming query that reads from the source writes to when it begins."""
    session: Any = spark
    source = session._jsparkSession.sessionState().dataSourceManager().lookupDataSource(name)
    return source.dataSourceCls().envVars()


@pytest.mark.parametrize("name", ["oncelog", "oncelog.table"])
def test_queries_that_begin_together_cannot_break_what_their_tasks_are_sent(spark: SparkSession, name: str) -> None:
    session: Any = spark
    before = dict(session.sparkContext.environment)
    register(spark)
    environment = environment_of(spark, name)
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert dict(environment) == before
    assert session.sparkContext.environment == before
    assert isinstance(session.sparkContext.environment, dict)


def test_a_session_without_a_context_of_its_own_registers_as_well() -> None:
    class Remote:
        """Of a client of Spark Connect."""

        def __init__(self) -> None:
            self.names: list[str] = []
            self.settings: dict[str, str] = {}
            self.dataSource = self.conf = self

        def register(self, source: Any) -> None:
            self.names.append(source.name())

        def set(self, key: str, value: str) -> None:
            self.settings[key] = value

    remote: Any = Remote()
    register(remote)
    assert remote.names == ["oncelog", "oncelog.table"]
    assert remote.settings == {"spark.sql.python.filterPushdown.enabled": "true"}
