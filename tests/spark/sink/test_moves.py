"""The coordinator of every transaction, and the leaders of the output and the journal, move to another broker while
a batch is under way, at every moment there is. On Apache Kafka: two brokers, and real reassignments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncelog.spark.moments import Moment
from oncelog.spark.sink.journal_topic import journal_topic
from tests.conftest import SETTINGS
from tests.spark.sink.on_brokers import Rig, numbered
from tests.spark.sink.test_on_brokers import moments
from tests.spark.support.moments import Moments
from tests.support.confluent import create_topic
from tests.support.moving import COORDINATION, KafkaPair

__all__ = ["moments"]

TOPIC = "output"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[KafkaPair]:
    with KafkaPair(tmp_path, SETTINGS) as pair:
        yield pair


def test_coordinators_and_leaders_that_move_during_a_batch(pair: KafkaPair, moments: Moments) -> None:
    create_topic(pair.first, TOPIC, partitions=3)
    pair.join()
    rig = Rig(pair.first, TOPIC)
    batch_ids = itertools.count()
    expected = [numbered("before", 20)]
    rig.run(next(batch_ids), *expected)
    with ThreadPoolExecutor(1) as pool:
        for moment in (Moment.PLANNING, Moment.WRITING, Moment.DECIDED, Moment.ENDED_SOME, Moment.ENDED_ALL):
            slots = [numbered(f"{moment.value} {slot}", 10) for slot in range(12)]
            moments.arm(moment)
            batch = pool.submit(rig.run, next(batch_ids), *slots)
            moments.await_reached(moment)
            pair.move([COORDINATION, TOPIC, journal_topic(rig.prefix)])
            moments.release(moment)
            batch.result()
            expected += slots
    rig.check(*expected)
