"""One SparkSession for all Spark tests of a process: it is the dearest thing they share.

A test gives its streams checkpoints and views of its own, and stops what it started.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import parts
from tests.support import spark as support

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]`, with Spark's own Kafka connector as `format("kafka")`."""
    parts.required(parts.java)
    connector = parts.required(support.connector_settings)
    with support.session({**support.local_settings(tmp_path_factory.mktemp("spark")), **connector}) as session:
        yield session
