"""What a micro-batch costs: how long one record takes through a running query, from topic to committed in a topic."""

from __future__ import annotations

from bench.contest import Comparison, figures
from bench.figures import Bounds, Figure, Progress, at_most
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import CONNECTOR, both_formats, held


def _compared(share: str, bounds: Bounds | None) -> Comparison:
    what = f"Spark, one record from topic to topic, {share}"
    return Comparison(what, "ms", "wait kafka", "wait oncelog", CONNECTOR, bounds, share, "ours exactly once")


COMPARED = [_compared("p50", at_most(1.5, 0.8)), _compared("p95", None)]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        results = held(scale.spark_rounds, brokers, both_formats("wait"), scale.spark_waits, progress)
    return figures(results, COMPARED)
