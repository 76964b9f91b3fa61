"""Queries on Spark against each other: the topics that they read, and who runs when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.contest import Entry, Results, hold
from bench.figures import OURS, Progress
from bench.scale import Scale
from bench.spark_drivers import Job, fill
from tests.support.process import BrokerProcess

CONNECTOR = "Spark's connector"
SOURCE, WARM = "source", "warm"
WARM_SHARE = 20
"""The query that warms up reads so many times less."""


def both_formats(program: str, database: str = "") -> list[Entry]:
    """One of the programs of `spark_drivers` with either connector."""
    job = Job("", SOURCE, WARM, 0, database=database)
    return [Entry(f"{program} {kind}", f"{program} {kind}", job) for kind in ("kafka", OURS)]


def held(
    rounds: int, brokers: Mapping[str, BrokerProcess], entries: Sequence[Entry], rows: int, progress: Progress
) -> Results:
    for broker in brokers.values():
        fill(broker.bootstrap, SOURCE, rows)
        fill(broker.bootstrap, WARM, max(1, rows // WARM_SHARE))
    filled = [replace(entry, job=replace(entry.job, rows=rows)) for entry in entries]
    return hold(rounds, brokers, filled, progress)


def of_both_sizes(scale: Scale, brokers: Mapping[str, BrokerProcess], progress: Progress) -> Results:
    """Our copying of a small batch and of a large one."""
    entries = []
    for rows in scale.spark_growth:
        for broker in brokers.values():
            fill(broker.bootstrap, f"{SOURCE}-{rows}", rows)
        entries.append(Entry(called(rows), f"copy {OURS}", Job("", f"{SOURCE}-{rows}", WARM, rows)))
    for broker in brokers.values():
        fill(broker.bootstrap, WARM, max(1, min(scale.spark_growth) // WARM_SHARE))
    return hold(scale.spark_rounds, brokers, entries, progress)


def called(rows: int) -> str:
    return f"{rows:,} rows"
