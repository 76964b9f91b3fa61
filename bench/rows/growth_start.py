"""Start after kill -9 with a few records in each partition: 100 times as many may take 30 times as long."""

from __future__ import annotations

import time

from bench.figures import Figure, Progress, at_most
from bench.growth import RECORDS, TOPIC, growth
from bench.scale import Scale
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import LATEST, list_offset

WHAT = "ready after kill -9"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    return [growth(WHAT, "ms", scale.growth, scale.recovery_rounds, at_most(30.0), _restart_ms, progress)]


def _restart_ms(broker: BrokerProcess, partitions: int) -> float:
    broker.kill()
    begun = time.perf_counter()
    broker.start()
    with RawClient(broker.address) as client:
        stored = [list_offset(client, TOPIC, LATEST, partition=index)["offset"] for index in (0, partitions - 1)]
    elapsed_ms = (time.perf_counter() - begun) * 1_000
    assert stored == [RECORDS, RECORDS], f"{stored} records are left in the first and the last partition"
    return elapsed_ms
