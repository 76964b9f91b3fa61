"""One synchronous send to one partition while many others exist: it should not notice them."""

from __future__ import annotations

from bench.clients import synchronous_sends_ms
from bench.figures import Figure, Progress, at_most, percentile
from bench.growth import TOPIC, growth
from bench.scale import Scale
from tests.support.process import BrokerProcess

WHAT = "one synchronous send, p50,"
VALUE = b"v" * 100


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    def p50_ms(broker: BrokerProcess, partitions: int) -> float:
        durations_ms = synchronous_sends_ms(broker.bootstrap, TOPIC, scale.synchronous_sends, VALUE, partition=0)
        return percentile(durations_ms[len(durations_ms) // 20 :], 0.5)

    return [growth(WHAT, "ms", scale.growth, scale.rounds, at_most(1.2), p50_ms, progress)]
