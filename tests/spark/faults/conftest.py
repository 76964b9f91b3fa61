from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.support.moments import Moments
from tests.spark.support.rig import Rig
from tests.spark.support.session import SessionRunner
from tests.support.process import BrokerProcess


@pytest.fixture
def runner(spark: SparkSession) -> Iterator[SessionRunner]:
    runner = SessionRunner(spark)
    yield runner
    runner.stop()


@pytest.fixture
def rig(broker: BrokerProcess, tmp_path: Path, new_topic: Callable[[], str], moments: Moments) -> Iterator[Rig]:
    """A pipeline for the session that is shared."""
    with Rig(broker, tmp_path, new_topic(), moments) as rig:
        yield rig
