"""One SparkSession for all Spark tests of a process: it is the dearest thing they share.

A test gives its streams checkpoints and views of its own, and stops what it started. A task that fails is tried once
more, as on a cluster. All processes of the session know the folder of `moments`, where a test may tell them to die.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.support.moments import Moments
from tests.support import parts
from tests.support import spark as support

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


MASTER = "local[2, 2]"


@pytest.fixture(scope="session")
def session_moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    return Moments(tmp_path_factory.mktemp("moments"))


@pytest.fixture
def moments(session_moments: Moments) -> Iterator[Moments]:
    """What happens at which moment, in any process of the session `spark`; nothing is left to happen later."""
    yield session_moments
    session_moments.clear()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, session_moments: Moments) -> Iterator[SparkSession]:
    """Two cores, with Spark's own Kafka connector as `format("kafka")`."""
    parts.required(parts.java)
    connector = parts.required(support.connector_settings)
    settings = support.local_settings(tmp_path_factory.mktemp("spark"), MASTER)
    os.environ.update(session_moments.environment)  # before there is a JVM, which hands it on to Python's workers
    with support.session({**settings, **connector}) as session:
        yield session


@pytest.fixture
def patient_starts(monkeypatch: pytest.MonkeyPatch) -> list[StreamingQuery]:
    """For code that is not the tests' own, such as examples: its queries, each started by `started`."""
    from pyspark.sql.streaming import DataStreamWriter

    from tests.spark.support.starting import started

    queries: list[StreamingQuery] = []
    start = DataStreamWriter.start

    def start_patiently(writer: DataStreamWriter, *arguments: Any, **options: Any) -> StreamingQuery:
        queries.append(started(lambda: start(writer, *arguments, **options)))
        return queries[-1]

    monkeypatch.setattr(DataStreamWriter, "start", start_patiently)
    return queries
