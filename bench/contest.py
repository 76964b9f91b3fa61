"""Clients against each other, on both brokers: who runs when, and the figures that come of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bench.figures import KINDS, NAMES, OURS, Bounds, Figure, Progress
from bench.worker import Result
from tests.support.process import BrokerProcess

Results = dict[tuple[str, str], list[Result]]
"""By the broker's kind and the entry's name."""


class Job(Protocol):
    """A frozen dataclass that has `bootstrap` and `broker_pid` as well."""

    def measured(self, program: str) -> Result: ...


@dataclass(frozen=True)
class Entry:
    """One of the JOBS of `producers` or `consumers`, and its work; the broker's address is filled in."""

    name: str
    program: str
    job: Job


@dataclass(frozen=True)
class Comparison:
    what: str
    unit: str
    theirs: str
    ours: str
    """Names of entries."""
    peer: str
    bounds: Bounds | None
    value: str = "rate"
    """Which of the results counts."""
    note: str = ""


def hold(rounds: int, brokers: Mapping[str, BrokerProcess], entries: Sequence[Entry], progress: Progress) -> Results:
    """Every entry once a round on every broker, each as often early as late."""
    results: Results = {}
    order = [(kind, entry) for kind in KINDS if kind in brokers for entry in entries]
    for _ in range(rounds):
        for kind, entry in order:
            broker = brokers[kind]
            os.sync()  # nobody pays for what others have left to be written
            job: Job = replace(entry.job, bootstrap=broker.bootstrap, broker_pid=broker.pid)  # type: ignore[type-var]
            result = job.measured(entry.program)
            results.setdefault((kind, entry.name), []).append(result)
            said = ", ".join(f"{key} {value:,.3f}" for key, value in result.items())
            progress(f"{entry.name} on {NAMES[kind]}: {said}")
        order.reverse()
    return results


def warm_up(times: int, brokers: Mapping[str, BrokerProcess], entry: Entry) -> None:
    """A JVM is at its best only after some ten thousand requests like those that are measured."""
    for broker in brokers.values():
        job: Job = replace(entry.job, bootstrap=broker.bootstrap)  # type: ignore[type-var]
        for _ in range(times):
            job.measured(entry.program)


def figures(results: Results, comparisons: Sequence[Comparison]) -> list[Figure]:
    made = []
    for one in comparisons:
        for kind in KINDS:
            samples = {
                one.peer: [result[one.value] for result in results[kind, one.theirs]],
                OURS: [result[one.value] for result in results[kind, one.ours]],
            }
            made.append(Figure(f"{one.what}, on {NAMES[kind]}", one.unit, samples, one.bounds, one.note, one.peer))
    return made
