"""One batch from topic to topic, small and large: time grows with the rows and no faster, memory not at all."""

from __future__ import annotations

from bench.figures import KINDS, NAMES, OURS, Figure, Progress, at_most
from bench.peers import both_running
from bench.scale import Scale
from bench.spark_contest import called, of_both_sizes

NOTE = "topic to topic, exactly once"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with both_running() as brokers:
        results = of_both_sizes(scale, brokers, progress)
    small, large = map(called, scale.spark_growth)
    figures = []
    for kind in KINDS:
        for what, unit, value, limit in (
            ("time for each", "µs", "row_us", at_most(1.15)),
            ("memory of the largest Python worker", "MB", "worker_mb", at_most(1.2)),
        ):
            sides = {small: results[kind, small], OURS: results[kind, large]}
            samples = {side: [one[value] for one in runs] for side, runs in sides.items()}
            title = f"Spark, {what} of {large} in a batch, on {NAMES[kind]}"
            figures.append(Figure(title, unit, samples, limit, NOTE, small))
    return figures
