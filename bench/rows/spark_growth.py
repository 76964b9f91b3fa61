"""Whether time grows with the rows and no faster: one batch from topic to topic, small and large."""

from __future__ import annotations

from bench.figures import KINDS, NAMES, Figure, Progress, at_most
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import of_both_sizes


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        small, samples = of_both_sizes("row_us", scale, brokers, progress)
    return [
        Figure(
            f"Spark, time for each of {scale.spark_growth[1]:,} rows in a batch, on {NAMES[kind]}",
            *("µs", samples[kind], at_most(1.15), "topic to topic, exactly once", small),
        )
        for kind in KINDS
    ]
