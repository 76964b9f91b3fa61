"""Spark reads a topic: Spark's own connector against ours, in a streaming query that ends with what is there."""

from __future__ import annotations

from bench.contest import Comparison, figures
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import CONNECTOR, both_formats, held

COMPARED = [
    Comparison("Spark, topic to noop, 100 B", "rows/s", "read kafka", "read oncelog", CONNECTOR, at_least(1.0, 1.6))
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        results = held(scale.spark_rounds, brokers, both_formats("read"), scale.spark_rows, progress)
    return figures(results, COMPARED)
