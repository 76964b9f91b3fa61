"""Spark copies a topic: ours exactly once against Spark's own connector, which knows only at least once."""

from __future__ import annotations

from bench.contest import Comparison, figures
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import CONNECTOR, both_formats, held

COMPARED = [
    Comparison(
        "Spark, topic to topic, exactly once, 100 B",
        "rows/s",
        *("copy kafka", "copy oncelog", CONNECTOR, at_least(1.0, 2.0)),
        note="Spark's connector at least once",
    )
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        results = held(scale.spark_rounds, brokers, both_formats("copy"), scale.spark_rows, progress)
    return figures(results, COMPARED)
