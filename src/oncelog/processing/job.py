"""What `process()` was asked to do, checked once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.client.failure_run import MAX_FAILURES_IN_A_ROW
from oncelog.client.functions import objection_to
from oncelog.errors import InvalidConfig
from oncelog.processing.report import OnBatch

Source = str | Iterable[str] | re.Pattern[str]
Servers = str | Iterable[str] | Mapping[str, Any]

BATCH_RECORDS = 1_000
BATCH_MS = 5
RETRIES = 3
PRODUCER_DEFAULTS = {"batch_size": 256 * 1024}
"""A batch of records is to leave in few requests."""
CONSUMER_DEFAULTS = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
"""A group that has committed nothing yet begins at the beginning: `latest` would pass over what is written before the
first offset commit, as often as its partitions move until then."""


class FeedsItself(InvalidConfig):
    """The results go to a topic that is read."""


@dataclass(frozen=True, slots=True)
class Job:
    source: Source
    function: Callable[[Any], Any]
    target: str | None
    servers: Servers
    group: str
    transactional_id: str
    batch_records: int = BATCH_RECORDS
    batch_ms: int = BATCH_MS
    until_end: bool = False
    tables: bool = False
    dead_letter: str | None = None
    retries: int = RETRIES
    max_failures_in_a_row: int = MAX_FAILURES_IN_A_ROW
    workers: int = 1
    consumer: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    on_batch: OnBatch | None = None
    is_async: bool = False
    """Whether the functions may be coroutine functions."""

    def __post_init__(self) -> None:
        self._check_functions()
        self._check_topics()
        if not self.group or not self.transactional_id:
            raise InvalidConfig("group and transactional_id must not be empty")
        if self.batch_records < 1 or self.workers < 1 or self.max_failures_in_a_row < 1:
            raise InvalidConfig("batch_records, workers and max_failures_in_a_row begin at 1")
        if self.batch_ms < 0 or self.retries < 0:
            raise InvalidConfig("batch_ms and retries begin at 0")
        if self.tables and self.target is None:
            raise InvalidConfig("with tables=True all rows go to one topic: give process() a target")

    def _check_functions(self) -> None:
        argument = "table" if self.tables else "records"
        objection = objection_to(self.function, (argument,), may_be_async=self.is_async)
        if objection is not None:
            raise InvalidConfig(f"the function is called with a batch of records: {objection}")
        if self.on_batch is not None:
            objection = objection_to(self.on_batch, ("report",), may_be_async=self.is_async)
            if objection is not None:
                raise InvalidConfig(f"on_batch: {objection}")

    def _check_topics(self) -> None:
        if not isinstance(self.source, str | re.Pattern):
            object.__setattr__(self, "source", tuple(self.source))  # looked at more than once
        for name, topic in (("the target", self.target), ("dead_letter", self.dead_letter)):
            if topic is not None and self.reads(topic):
                raise FeedsItself(
                    f"{name} {topic!r} is among the topics that process() reads: it would process its own results,"
                    " without end. Write to another topic"
                )

    @property
    def source_names(self) -> frozenset[str]:
        """The topics that are read, if they are named; none for a pattern."""
        source = self.source
        if isinstance(source, re.Pattern) or (isinstance(source, str) and source.startswith("^")):
            return frozenset()
        return frozenset([source] if isinstance(source, str) else source)

    def reads(self, topic: str) -> bool:
        """Whether it is among the sources."""
        source = self.source
        if isinstance(source, str) and source.startswith("^"):
            source = re.compile(source)
        if isinstance(source, re.Pattern):
            return source.fullmatch(topic) is not None
        return topic == source if isinstance(source, str) else topic in source

    def consumer_settings(self) -> dict[str, Any]:
        given = _underscored(self.consumer)
        if str(given.get("enable_auto_commit", "false")).lower() != "false":
            raise InvalidConfig("process() commits offsets with the results: leave enable.auto.commit out")
        own = {"group_id": self.group, "enable_auto_commit": False}
        return self._merged(CONSUMER_DEFAULTS, given, own)

    def producers_settings(self, worker: int) -> list[dict[str, Any]]:
        """Of the two that take turns. Each worker has transactional ids of its own. The first one's stay the same
        however many there are, so that whoever starts next ends what a crash left open."""
        name = self.transactional_id if worker == 0 else f"{self.transactional_id}-{worker}"
        given = _underscored(self.producer)
        return [self._merged(PRODUCER_DEFAULTS, given, {"transactional_id": one}) for one in (name, f"{name}-turn")]

    def _merged(self, defaults: Mapping[str, Any], given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in own.items():
            if name in given and given[name] != value and name != "enable_auto_commit":
                raise InvalidConfig(f"{name} is an argument of process(): {value!r} there, {given[name]!r} in settings")
        is_mapping = isinstance(self.servers, Mapping)
        shared = _underscored(self.servers) if is_mapping else {"bootstrap_servers": self.servers}  # type: ignore[arg-type]
        return {**defaults, **shared, **given, **own}


def _underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
