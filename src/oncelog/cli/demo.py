"""`oncelog demo`: numbered records survive lost answers, cut connections and a broker killed three times, or do not.

Two producers send the same records to the same broker, each through a fault proxy with the same seeded script: one as
it is by default, one with idempotence switched off. The broker's process is killed with SIGKILL under both and started
again on the same data. The audit then shows what became of the records. Everything is temporary and is removed at the
end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field

from rich.console import Console

from oncelog.audit.account import Audit, AuditReport
from oncelog.audit.numbered_load import NumberedLoad
from oncelog.audit.ports import unused_port
from oncelog.broker.process import Broker
from oncelog.cli.audit import observe_topic
from oncelog.cli.audit_table import to_json
from oncelog.cli.demo_screen import Screen, print_comparison, progress_screen
from oncelog.client.producer_errors import ProducerClosed
from oncelog.errors import OncelogError
from oncelog.faults import FaultProxy, Report, Rule
from oncelog.producer.producer import Producer

RECORDS = 200_000
RECORD_BYTES = 100
PARTITIONS = 6
SENDING_S = 18
"""Sending is spread over this time, so that every fault strikes records on their way."""

SEED = 7
KILLS = 3
RULES = (
    Rule.drop_response("Produce", probability=0.01),
    Rule.reorder_requests("Produce", probability=0.02),
    Rule.cut("Produce", probability=0.005),
    # Also where a slow machine sends few requests, and chance would spare them all.
    Rule.drop_response("Produce", every=10, limit=5),
)
"""Answers that get lost (what was stored is sent again), requests that overtake each other, cut connections."""

CHUNK = 100
WATCH_S = 0.05
STALL_TIMEOUT_S = 60.0
DUPLICATES_METRIC = re.compile(r"^oncelog_duplicates_recognised_total (\S+)$", re.MULTILINE)
INTERRUPTED_EXIT_CODE = 130


class DemoStalled(OncelogError):
    """The producers got no answer for a long time, although the broker runs."""


@dataclass
class Tally:
    """What was done to the broker and to the idempotent producer's connections, and what the broker noticed."""

    seed: int = SEED
    kills: int = 0
    answers_lost: int = 0
    requests_overtaken: int = 0
    connections_cut: int = 0
    duplicates_recognised: int = 0
    restarts_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Records that a producer gave up on: not lost, since nobody was told that they are stored, but not sent either."""

    def count_faults(self, report: Report) -> None:
        self.answers_lost = report.responses["Produce"].dropped
        self.requests_overtaken = report.requests["Produce"].reordered
        self.connections_cut = report.requests["Produce"].cut


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo", help="kill the broker and break connections under load, then audit", description=__doc__
    )
    parser.add_argument(
        "--records", type=int, default=RECORDS, metavar="N", help=f"how many to send each way (default {RECORDS:,})"
    )
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the faults (default {SEED})")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    console = Console(stderr=args.json)
    try:
        report, plain, tally = _perform(args.records, args.seed, console)
    except KeyboardInterrupt:
        print("interrupted; the broker is stopped and its data removed", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    return conclude(report, plain, tally, as_json=args.json)


def conclude(report: AuditReport, plain: AuditReport, tally: Tally, *, as_json: bool) -> int:
    """Show the outcome. The exit code is 0 only if the idempotent producer's audit found nothing and the other one's
    found something: faults that harm nobody prove nothing."""
    if as_json:
        print(to_json(report, without_idempotence=dataclasses.asdict(plain.total), **dataclasses.asdict(tally)))
    else:
        _print_outcome(report, plain, tally, Console())
    return 0 if report.clean and not tally.failures and _is_harmed(plain) else 1


def _is_harmed(plain: AuditReport) -> bool:
    return bool(plain.total.duplicated or plain.total.out_of_order)


def _perform(records: int, seed: int, console: Console) -> tuple[AuditReport, AuditReport, Tally]:
    metrics_port = unused_port()
    config = {"metrics.port": metrics_port, "num.partitions": PARTITIONS}
    with Broker(port=unused_port(), config=config) as broker, ExitStack() as sides:
        idempotent = sides.enter_context(_Side(broker, "idempotent", seed, records, enable_idempotence=True))
        plain = sides.enter_context(_Side(broker, "plain", seed, records, enable_idempotence=False))
        kills = _Kills(broker, metrics_port, records, seed)
        with progress_screen(console, records) as screen:
            screen.tell(f"broker ready at {broker.bootstrap_servers}, producers go through fault proxies (seed {seed})")
            _send_under_faults([idempotent, plain], kills, records, screen)
        kills.count_duplicates()
        tally = kills.tally
        tally.count_faults(idempotent.proxy.report())
        tally.failures = idempotent.load.failures + plain.load.failures
        return idempotent.audit(), plain.audit(), tally


def _send_under_faults(sides: list[_Side], kills: _Kills, records: int, screen: Screen) -> None:
    seen, seen_at = 0, time.monotonic()
    while any(side.settled < records for side in sides):
        acknowledged = min(side.settled for side in sides)
        kills.strike(acknowledged, screen)
        time.sleep(WATCH_S)
        screen.advance(acknowledged)
        if acknowledged > seen:
            seen, seen_at = acknowledged, time.monotonic()
        elif time.monotonic() - seen_at > STALL_TIMEOUT_S:
            raise DemoStalled(f"no record was acknowledged for {STALL_TIMEOUT_S:.0f} s after {seen:,} of {records:,}")
    screen.advance(records)


class _Side:
    """A producer behind its proxy, and the thread that feeds it."""

    def __init__(self, broker: Broker, name: str, seed: int, records: int, *, enable_idempotence: bool) -> None:
        self._broker = broker
        self._topic = name
        self._records = records
        self._is_ending = threading.Event()
        self._enable_idempotence = enable_idempotence
        self.proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        self.load: NumberedLoad
        self._producer: Producer
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> _Side:
        self.proxy.start()
        self._producer = Producer(self.proxy.bootstrap_servers, enable_idempotence=self._enable_idempotence)
        self.load = NumberedLoad(self._producer, self._topic, name="demo", record_bytes=RECORD_BYTES)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_ending.set()
        self._producer.close(0)
        self._thread.join()
        self.proxy.close()

    @property
    def settled(self) -> int:
        return self.load.acknowledged + len(self.load.failures)

    def audit(self) -> AuditReport:
        audit = Audit(self.load.ledger)
        observe_topic(audit, self._broker.bootstrap_servers, self._topic)
        return audit.report()

    def _feed(self) -> None:
        begun = time.monotonic()
        try:
            while self.load.sent < self._records:
                self.load.send(min(CHUNK, self._records - self.load.sent))
                due = begun + SENDING_S * self.load.sent / self._records
                if self._is_ending.wait(max(0.0, due - time.monotonic())):
                    return
        except ProducerClosed:
            if not self._is_ending.is_set():
                raise


class _Kills:
    """Kills of the broker, spread evenly over the records."""

    def __init__(self, broker: Broker, metrics_port: int, records: int, seed: int) -> None:
        self._broker = broker
        self._metrics_port = metrics_port
        self._due = [records * (number + 1) // (KILLS + 1) for number in range(KILLS)]
        self.tally = Tally(seed=seed)

    def strike(self, acknowledged: int, screen: Screen) -> None:
        """Kill the broker and start it again, if enough records have been acknowledged."""
        if not self._due or acknowledged < self._due[0]:
            return
        self._due.pop(0)
        self.count_duplicates()
        self._broker.kill()
        begun = time.monotonic()
        self._broker.start()
        self.tally.kills += 1
        self.tally.restarts_ms.append((time.monotonic() - begun) * 1_000)
        screen.tell(f"kill -9 number {self.tally.kills}: ready again after {self.tally.restarts_ms[-1]:.0f} ms")

    def count_duplicates(self) -> None:
        """Add what the running broker counted; a restarted one counts from 0 again."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            found = DUPLICATES_METRIC.search(answer.read().decode())
        self.tally.duplicates_recognised += int(float(found[1])) if found else 0


def _print_outcome(report: AuditReport, plain: AuditReport, tally: Tally, console: Console) -> None:
    console.print()
    print_comparison(report.total, plain.total, console)
    console.print(
        f"{tally.kills} times kill -9\n"
        f"{tally.answers_lost} answers lost, {tally.requests_overtaken} requests overtaken, {tally.connections_cut}"
        f" connections cut (seed {tally.seed})\n"
        f"{tally.duplicates_recognised:,} duplicate batches recognised and not stored again",
        highlight=False,
    )
    if tally.failures:
        console.print(f"{len(tally.failures):,} records could not be sent, first {tally.failures[0]}", style="red")
    if not _is_harmed(plain):
        console.print("without idempotence nothing went wrong either: this run proves nothing", style="red")
    for entry in report.partitions:
        for example in entry.examples:
            console.print(f"{entry.partition}: {example}", style="red", highlight=False)
    total = report.total
    verdict = f"lost {total.lost:,}, duplicated {total.duplicated:,}, out of order {total.out_of_order:,}"
    console.print(f"[bold]{verdict}[/]", style="green" if report.clean else "red", highlight=False)
