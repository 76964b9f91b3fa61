"""A pipeline as frozen values: what flows from where, through what, to where.

Each value keeps the section that it was read from, so that whoever finds something wrong later can say on which line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.spark.pipeline.document import Entry, Problem, Section

OUR_FORMAT: Final = "oncelog"
TABLE_FORMAT: Final = "oncelog.table"
EXACTLY_ONCE: Final = "exactly-once"
BOOTSTRAP: Final = "kafka.bootstrap.servers"

_INTERVAL = re.compile(r"processing-time\s+(?P<interval>\d+\s+(?:millisecond|second|minute|hour|day)s?)")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a batch begins. Spark knows each kind by the name of an argument."""

    text: str
    argument: str
    value: bool | str

    @property
    def ends(self) -> bool:
        return self.argument != "processingTime"

    @classmethod
    def parse(cls, text: str) -> Trigger | None:
        words = " ".join(text.lower().split())
        if words == "available-now":
            return cls(words, "availableNow", True)
        if words == "once":
            return cls(words, "once", True)
        found = _INTERVAL.fullmatch(words)
        return None if found is None else cls(words, "processingTime", found["interval"])


@dataclass(frozen=True, slots=True)
class Source:
    section: Section
    name: str
    format: str
    streaming: bool
    options: Mapping[str, str]
    schema: str | None = None

    @property
    def is_topic(self) -> bool:
        return self.format == OUR_FORMAT


@dataclass(frozen=True, slots=True)
class SqlStep:
    section: Section
    name: str
    sql: Entry

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """A user's function (`python`) or a stream tool (`tool`); `key` says which."""

    section: Section
    name: str
    key: str
    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: Mapping[str, Any]


Step = SqlStep | FunctionStep


@dataclass(frozen=True, slots=True)
class Sink:
    """`options` are those of the data source."""

    section: Section
    name: str
    type: str
    format: str
    input: str
    output_mode: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    create_partitions: int | None = None
    """A topic that is not there is made with so many partitions."""

    @property
    def topic(self) -> str | None:
        return self.options.get("topic") if self.type == "topic" else None

    def problem(self, text: str, *keys: str) -> Problem:
        return self.section.problem(text, *keys)


@dataclass(frozen=True, slots=True)
class Pipeline:
    section: Section
    name: str
    master: str
    checkpoint: str
    trigger: Trigger
    settings: Mapping[str, str]
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]

    def checkpoint_of(self, sink: Sink) -> str:
        return f"{self.checkpoint}/{sink.name}"
