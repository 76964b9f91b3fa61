"""`oncelog demo`: numbered records survive cut connections and a broker killed three times; the audit proves it.

confluent-kafka sends (a client that shares no code with the broker) through a proxy that cuts connections, and the
broker's process is killed with SIGKILL and started again on the same data. Everything is temporary and is removed at
the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oncelog.audit.account import Audit, AuditReport
from oncelog.audit.load import NumberedLoad, confluent_kafka
from oncelog.audit.ports import unused_port
from oncelog.audit.proxy import CuttingProxy
from oncelog.broker.process import Broker
from oncelog.cli.audit import observe_topic
from oncelog.cli.audit_table import print_report, to_json
from oncelog.errors import OncelogError

TOPIC = "demo"
RECORDS = 200_000
PARTITIONS = 6
SENDING_S = 12
"""Sending is spread over this time, so that every fault strikes records on their way."""

KILLS = 3
CUTS = 15
SWALLOW_S = 0.05
"""How long answers are swallowed before a cut, so that the client must send again what is already stored."""

WATCH_S = 0.05
STALL_TIMEOUT_S = 60.0
PLAIN_LINE_EVERY = 0.1
DUPLICATES_METRIC = re.compile(r"^oncelog_duplicates_recognised_total (\S+)$", re.MULTILINE)
INTERRUPTED_EXIT_CODE = 130


class DemoStalled(OncelogError):
    """The client got no answer for a long time, although the broker runs."""


class Screen(Protocol):
    """Where progress is shown."""

    def tell(self, event: str) -> None: ...

    def advance(self, acknowledged: int) -> None: ...


@dataclass
class Tally:
    """What was done to the connections and the broker, and what the broker noticed."""

    kills: int = 0
    cuts: int = 0
    connections_cut: int = 0
    duplicates_recognised: int = 0
    restarts_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Records that the client gave up on: not lost, since nobody was told that they are stored, but not sent either."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo", help="kill the broker and cut connections under load, then audit", description=__doc__
    )
    parser.add_argument(
        "--records", type=int, default=RECORDS, metavar="N", help=f"how many to send (default {RECORDS:,})"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    confluent_kafka()
    console = Console(stderr=args.json)
    try:
        report, tally = _perform(args.records, console)
    except KeyboardInterrupt:
        print("interrupted; the broker is stopped and its data removed", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    return conclude(report, tally, as_json=args.json)


def conclude(report: AuditReport, tally: Tally, *, as_json: bool) -> int:
    """Show the outcome; the exit code is 0 only if every record was sent and the audit found nothing."""
    if as_json:
        print(to_json(report, **dataclasses.asdict(tally)))
    else:
        _print_outcome(report, tally, Console())
    return 0 if report.clean and not tally.failures else 1


def _perform(records: int, console: Console) -> tuple[AuditReport, Tally]:
    metrics_port = unused_port()
    with (
        CuttingProxy() as proxy,
        Broker(
            port=unused_port(),
            advertise=proxy.bootstrap_servers,
            config={"metrics.port": metrics_port, "num.partitions": PARTITIONS},
        ) as broker,
    ):
        proxy.upstream = (broker.host, broker.port)
        load = NumberedLoad(
            proxy.bootstrap_servers, TOPIC, partitions=PARTITIONS, name="demo", records_per_second=records / SENDING_S
        )
        faults = _Faults(broker, proxy, metrics_port, records)
        with _screen(console, records) as screen:
            screen.tell(f"broker ready at {broker.host}:{broker.port}, clients go through {proxy.bootstrap_servers}")
            _send_under_faults(load, faults, records, screen)
        faults.count_duplicates()
        faults.tally.failures = load.failures
        audit = Audit(load.ledger)
        observe_topic(audit, broker.bootstrap_servers, TOPIC)
        return audit.report(), faults.tally


def _send_under_faults(load: NumberedLoad, faults: _Faults, records: int, screen: Screen) -> None:
    sender = threading.Thread(target=load.run, args=(records,), daemon=True)
    sender.start()
    try:
        seen, seen_at = 0, time.monotonic()
        while load.acknowledged + len(load.failures) < records:
            faults.strike(load.acknowledged, screen)
            if not sender.is_alive():
                load.flush(WATCH_S)
            time.sleep(WATCH_S)
            screen.advance(load.acknowledged)
            if load.acknowledged > seen:
                seen, seen_at = load.acknowledged, time.monotonic()
            elif time.monotonic() - seen_at > STALL_TIMEOUT_S:
                raise DemoStalled(
                    f"no record was acknowledged for {STALL_TIMEOUT_S:.0f} s after {seen:,} of {records:,}"
                )
    finally:
        load.stop()
        sender.join()
        load.abandon()


class _Faults:
    """Which fault strikes when: kills and cuts spread evenly over the records, one behind the other."""

    def __init__(self, broker: Broker, proxy: CuttingProxy, metrics_port: int, records: int) -> None:
        self._broker = broker
        self._proxy = proxy
        self._metrics_port = metrics_port
        kills = [(records * (number + 1) // (KILLS + 1), self._kill) for number in range(KILLS)]
        cuts = [(records * (2 * number + 1) // (2 * CUTS), self._cut) for number in range(CUTS)]
        self._due = sorted(kills + cuts, key=lambda fault: fault[0])
        self.tally = Tally()

    def strike(self, acknowledged: int, screen: Screen) -> None:
        """Perform the next fault if enough records have been acknowledged."""
        if self._due and acknowledged >= self._due[0][0]:
            _, fault = self._due.pop(0)
            fault(screen)

    def count_duplicates(self) -> None:
        """Add what the running broker counted; a restarted one counts from 0 again."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            found = DUPLICATES_METRIC.search(answer.read().decode())
        self.tally.duplicates_recognised += int(float(found[1])) if found else 0

    def _cut(self, screen: Screen) -> None:
        self._proxy.swallow_answers()
        time.sleep(SWALLOW_S)
        self.tally.connections_cut += self._proxy.cut()
        self.tally.cuts += 1

    def _kill(self, screen: Screen) -> None:
        self.count_duplicates()
        self._broker.kill()
        begun = time.monotonic()
        self._broker.start()
        self.tally.kills += 1
        self.tally.restarts_ms.append((time.monotonic() - begun) * 1_000)
        screen.tell(f"kill -9 number {self.tally.kills}: ready again after {self.tally.restarts_ms[-1]:.0f} ms")


@contextmanager
def _screen(console: Console, records: int) -> Iterator[Screen]:
    if not console.is_terminal:
        yield _PlainScreen(console, records)
        return
    columns = (TextColumn("acknowledged"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _BarScreen(progress, records)


class _BarScreen:
    def __init__(self, progress: Progress, records: int) -> None:
        self._progress = progress
        self._task = progress.add_task("acknowledged", total=records)

    def tell(self, event: str) -> None:
        self._progress.console.print(event, highlight=False)

    def advance(self, acknowledged: int) -> None:
        self._progress.update(self._task, completed=acknowledged)


class _PlainScreen:
    def __init__(self, console: Console, records: int) -> None:
        self._console = console
        self._records = records
        self._next_line = 0.0

    def tell(self, event: str) -> None:
        self._console.print(event, highlight=False)

    def advance(self, acknowledged: int) -> None:
        share = acknowledged / self._records
        if share >= self._next_line:
            self._next_line = share - share % PLAIN_LINE_EVERY + PLAIN_LINE_EVERY
            self.tell(f"{acknowledged:>9,} of {self._records:,} acknowledged")


def _print_outcome(report: AuditReport, tally: Tally, console: Console) -> None:
    console.print()
    print_report(report, console)
    console.print(
        f"{tally.kills} times kill -9, connections cut {tally.cuts} times\n"
        f"{tally.duplicates_recognised:,} duplicate batches recognised and not stored again",
        highlight=False,
    )
    if tally.failures:
        console.print(f"{len(tally.failures):,} records could not be sent, first {tally.failures[0]}", style="red")
    total = report.total
    verdict = f"lost {total.lost:,}, duplicated {total.duplicated:,}, out of order {total.out_of_order:,}"
    console.print(f"[bold]{verdict}[/]", style="green" if report.clean else "red", highlight=False)
