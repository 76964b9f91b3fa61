"""A pipeline under test: numbered records in a topic, a query that copies them to another, what must come of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from oncelog.spark.moments import Moment
from tests.spark.support import oracle
from tests.spark.support.driver import Driver
from tests.spark.support.moments import Moments
from tests.support.confluent import create_topic, make_producer, send
from tests.support.process import BrokerProcess

PARTITIONS = 2
KEYS = 5
"""Of each partition: a key's records are in one partition, so they have an order."""


class Runner(Protocol):
    """Runs one query at a time: a `Driver` of its own, or a `SessionRunner`."""

    def run(self, plan: Mapping[str, Any]) -> str: ...

    def outcome(self) -> str | None: ...


class Rig:
    def __init__(
        self,
        broker: BrokerProcess,
        folder: Path,
        name: str,
        moments: Moments | None = None,
        *,
        partitions: int = PARTITIONS,
    ) -> None:
        """With the `moments` of a session that runs already, or, for drivers of their own, others."""
        self.broker = broker
        self.folder = folder
        self.name = name
        self.partitions = partitions
        self.input, self.output, self.prefix = f"{name}-in", f"{name}-out", name
        self.checkpoint = folder / "checkpoint"
        self.moments = moments or Moments(folder / "moments")
        self.expected: list[tuple[bytes, bytes]] = []
        self._sent = [0] * partitions
        self._drivers = itertools.count(1)
        self._running: list[Driver] = []
        for topic in (self.input, self.output):
            create_topic(broker, topic, partitions=partitions)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for driver in self._running:
            print(driver.log[-6_000:])  # captured, and shown with a failure
            driver.kill()

    # --- input --------------------------------------------------------------------------------------------------

    def feed(self, count: int, only: int | None = None) -> None:
        """Numbered in each partition from 0 on; in the order of each key that is what must come out."""
        producer = make_producer(self.broker, enable_idempotence=True)
        places = range(self.partitions) if only is None else [only]
        messages = []
        for index in itertools.islice(itertools.cycle(places), count):
            number = self._sent[index]
            self._sent[index] += 1
            key, value = f"{index}.{number % KEYS}".encode(), f"{index}/{number}".encode()
            messages.append({"partition": index, "key": key, "value": value})
            self.expected.append((key, value))
        send(producer, self.input, messages)

    # --- the query ----------------------------------------------------------------------------------------------

    def plan(self, **changes: Any) -> dict[str, Any]:
        """`source` and `sink` add options; `slots` and `every` are as in the driver's plan."""
        servers = {"kafka.bootstrap.servers": self.broker.bootstrap}
        source = {**servers, "subscribe": self.input, "startingOffsets": "earliest"}
        sink = {
            **servers,
            "topic": self.output,
            "transactional.id.prefix": self.prefix,
            "checkpointLocation": str(self.checkpoint),
        }
        return {
            **changes,
            "source": {**source, **changes.get("source", {})},
            "sink": {**sink, **changes.get("sink", {})},
        }

    def driver(
        self,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Driver:
        """A new one, which starts in the background."""
        folder = self.folder / f"driver-{next(self._drivers)}"
        driver = Driver(folder, settings or {}, {**self.moments.environment, **(environment or {})}, cwd)
        self._running.append(driver)
        return driver

    def kill_at(self, moment: Moment, driver: Driver, **changes: Any) -> None:
        """The query runs until one of its processes comes to the moment, and stays there while all are killed."""
        self.moments.arm(moment)
        driver.run(self.plan(**changes))
        self.moments.await_reached(moment)
        driver.kill()

    def outcome(self, runner: Runner, **changes: Any) -> str | None:
        """None when the query came to the end of its input, else why it failed."""
        runner.run(self.plan(**changes))
        return runner.outcome()

    def run_to_the_end(self, runner: Runner, **changes: Any) -> None:
        failure = self.outcome(runner, **changes)
        assert failure is None, failure

    # --- what came out ------------------------------------------------------------------------------------------

    def rows(self) -> list[oracle.Row]:
        return oracle.committed_rows(self.broker.bootstrap, self.output, self.partitions)

    def check(self, *, in_order: bool = True) -> None:
        oracle.nothing_is_open(self.broker.bootstrap, self.output, self.partitions, self.prefix)
        oracle.exactly_once(self.rows(), self.expected, in_order=in_order)
