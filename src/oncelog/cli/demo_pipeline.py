"""The demo's second act: a Spark pipeline from topic to topic to table, whose driver, worker and broker are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from rich.console import Console

from oncelog.admin.admin import Admin
from oncelog.audit.account import Audit
from oncelog.cli.audit import observe_topic
from oncelog.cli.demo_broker import MortalBroker
from oncelog.cli.demo_chronicle import Chronicle, Who
from oncelog.cli.demo_driver import Driver
from oncelog.cli.demo_lifetime import Lifetime
from oncelog.cli.demo_outcome import Shipped, Tally
from oncelog.cli.demo_play import play
from oncelog.cli.demo_producers import Sending
from oncelog.cli.demo_rows import Rows
from oncelog.cli.demo_screen import Screen, progress_screen
from oncelog.cli.demo_script import PIPELINE_STEPS, Act, Script
from oncelog.consumer.consumer import Consumer
from oncelog.report import Tone
from oncelog.spark.moments import Moment
from oncelog.types import IsolationLevel, TopicPartition

SOURCE, TARGET = "purchases", "shipments"
PARTITIONS = 4
PLACES = ("sent", "in the output topic", "rows in the table")
RECORDS_PER_S = 3_000
LEAD = 0.3
"""More may be on its way than in the first act: Spark takes it in larger batches."""
STALL_TIMEOUT_S = 300.0
"""A driver may have to start meanwhile."""
MAX_POLLS = 20


class Pipeline(Lifetime):
    """Spark and its queries start with it, since that takes long, and are needed later."""

    def __init__(self, broker: MortalBroker, folder: Path, tally: Tally, chronicle: Chronicle) -> None:
        self._broker = broker
        self._folder = folder
        self._tally = tally
        self._chronicle = chronicle
        self._driver = Driver(broker.bootstrap_servers, SOURCE, TARGET, folder)

    def open(self) -> None:
        with Admin(self._broker.bootstrap_servers) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, partitions=PARTITIONS)
        self._driver.open()
        self._chronicle.begins(Who.DRIVER)

    def close(self) -> None:
        self._driver.close()

    def perform(self, records: int, console: Console) -> Shipped:
        script = Script(records, PIPELINE_STEPS, LEAD)
        rows = Rows(self._folder / "shipments.db")
        elapsed = lambda: self._chronicle.elapsed_s  # noqa: E731
        pace = script, self._tally.seed, RECORDS_PER_S
        with progress_screen(console, records, PLACES, elapsed) as screen:
            screen.tell(f"act 2: {records:,} purchases through Spark, {SOURCE} -> {TARGET} -> a table of SQLite")
            with (
                Sending(self._broker.process, SOURCE, *pace, enable_idempotence=True) as sending,
                _Arrivals(self._broker.bootstrap_servers) as arrivals,
            ):
                stage = _Stage(self._broker, self._driver, sending, arrivals, rows, self._tally, self._chronicle)
                play(stage, script, screen, self._chronicle, STALL_TIMEOUT_S)
                stage.end(screen)
                self._tally.count_faults(sending.proxy.report())
                return self._audit(sending, rows)

    def _audit(self, sending: Sending, rows: Rows) -> Shipped:
        ledger = sending.load.ledger.elsewhere()
        in_topic, in_table = Audit(ledger), Audit(ledger)
        observe_topic(in_topic, self._broker.bootstrap_servers, TARGET, IsolationLevel.READ_COMMITTED)
        rows.show_to(in_table)
        return Shipped(sending.audit(), in_topic.report(), in_table.report())


class _Arrivals:
    """Counts what a reader of committed records gets of the output topic. Use as a context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest")
        self._count = 0

    def __enter__(self) -> _Arrivals:
        self._consumer.assign([TopicPartition(TARGET, index) for index in range(PARTITIONS)])
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.close()

    @property
    def count(self) -> int:
        for _ in range(MAX_POLLS):
            records = self._consumer.poll(0)
            if not records:
                break
            self._count += len(records)
        return self._count


class _Stage:
    """The sender, Spark's processes, and what is done to them."""

    def __init__(
        self,
        broker: MortalBroker,
        driver: Driver,
        sending: Sending,
        arrivals: _Arrivals,
        rows: Rows,
        tally: Tally,
        chronicle: Chronicle,
    ) -> None:
        self._broker = broker
        self._driver = driver
        self._sending = sending
        self._arrivals = arrivals
        self._rows = rows
        self._tally = tally
        self._chronicle = chronicle
        self._awaited: Moment | None = None
        """Where a process of Spark is to be caught."""
        self._is_starting = True
        chronicle.begins(Who.PRODUCER)

    @property
    def counts(self) -> dict[str, int]:
        return dict(zip(PLACES, (self._sending.settled, self.reached, self._rows.count), strict=True))

    @property
    def reached(self) -> int:
        return self._arrivals.count

    @property
    def _is_in_trouble(self) -> bool:
        return self._is_starting or self._awaited is not None

    def is_complete(self, records: int) -> bool:
        return not self._is_in_trouble and all(count >= records for count in self.counts.values())

    def perform(self, act: Act, screen: Screen) -> bool:
        if self._is_in_trouble:
            return False
        match act:
            case Act.KILL_BROKER:
                self._broker.kill(screen)
            case Act.KILL_DRIVER:
                self._set_trap(Moment.DECIDED)
            case Act.KILL_WORKER:
                self._set_trap(Moment.FLUSHED)
        return True

    def _set_trap(self, moment: Moment) -> None:
        self._driver.set_trap(moment)
        self._awaited = moment

    def tend(self, screen: Screen) -> None:
        if not self._driver.check_alive():
            screen.tell("Spark ended a query: on this busy machine a Python worker took ten seconds to start")
            self._driver_ended("a worker was slow to start", screen)
        if self._is_starting and self._driver.is_running:
            self._is_starting = False
            self._chronicle.begins(Who.WORKERS)
            screen.tell("the Spark driver is up, and its two queries run")
        victim = self._awaited and self._driver.caught_at(self._awaited)
        if not victim:
            return
        if self._awaited is Moment.DECIDED:
            self._kill_driver(screen)
        else:
            self._kill_worker(victim, screen)
        self._awaited = None

    def _kill_driver(self, screen: Screen) -> None:
        self._driver.kill()
        screen.tell("kill -9 of the Spark driver inside a commit: the batch is decided, no transaction is committed")
        self._tally.driver_kills += 1
        self._driver.start()
        self._driver_ended("kill -9 inside a commit", screen)

    def _driver_ended(self, why: str, screen: Screen) -> None:
        """And the next one starts."""
        for who in (Who.DRIVER, Who.WORKERS):
            self._chronicle.ends(who)
        self._chronicle.note(Who.DRIVER, why, Tone.BAD)
        self._chronicle.begins(Who.DRIVER)
        self._is_starting = True
        screen.tell("another driver starts with the same checkpoints")

    def _kill_worker(self, victim: int, screen: Screen) -> None:
        os.kill(victim, signal.SIGKILL)
        self._tally.worker_kills += 1
        self._chronicle.note(Who.WORKERS, "kill -9", Tone.BAD)
        screen.tell("kill -9 of an executor's worker, its rows stored and not reported: Spark tries the task again")

    def end(self, screen: Screen) -> None:
        screen.tell("Spark works off what is there and ends, and the audit counts")
        self._driver.finish()
        for who in (Who.PRODUCER, Who.DRIVER, Who.WORKERS):
            self._chronicle.ends(who)
        self._tally.failures += self._sending.load.failures
