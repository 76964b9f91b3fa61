"""How long a record takes to a consumer that waits at the end of many partitions: from before it is sent until `poll`
returns it."""

from __future__ import annotations

from bench.consumers import Job
from bench.figures import Figure, Progress, at_most
from bench.growth import TOPIC, growth
from bench.scale import Scale
from tests.support.process import BrokerProcess

WHAT = "from send to poll(), p50,"
FEWER = 100
"""The small side has so many times fewer partitions."""


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    def p50_ms(broker: BrokerProcess, partitions: int) -> float:
        return Job(broker.bootstrap, TOPIC, partitions, scale.tail_records).measured("oncelog tail")["p50_ms"]

    sizes = (max(scale.growing_partitions // FEWER, 1), scale.growing_partitions)
    return [growth(WHAT, "ms", sizes, scale.rounds, at_most(2.0), p50_ms, progress)]
