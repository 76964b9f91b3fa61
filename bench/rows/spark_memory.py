"""What a Python worker of Spark needs while one batch goes from topic to topic: for a small batch, and a large one."""

from __future__ import annotations

from bench.figures import KINDS, NAMES, Figure, Progress, at_most
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import of_both_sizes


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        small, samples = of_both_sizes("worker_mb", scale, brokers, progress)
    return [
        Figure(
            f"Spark, memory of the largest Python worker, {scale.spark_growth[1]:,} rows in a batch, on {NAMES[kind]}",
            *("MB", samples[kind], at_most(1.2), "topic to topic, exactly once", small),
        )
        for kind in KINDS
    ]
