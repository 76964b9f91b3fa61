"""`oncelog demo`: orders on their way from `send()` to rows of a database, through faults and kills, once or not.

Two producers send the same numbered orders to one broker, each through a fault proxy with the same seeded script: one
as it is by default, one with idempotence switched off. Processors turn the orders of the first one into payments, in
transactions. Two groups of consumers book the payments into SQLite: one with `oncelog.once`, one as clients do by
default, with automatic commits and no other guarantee. Meanwhile the broker, processors and consumers of both groups
are killed with SIGKILL and started again, and consumers join and leave. The audit then shows what became of the orders.
Everything is temporary and is removed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from oncelog.audit.ports import unused_port
from oncelog.broker.process import Broker
from oncelog.cli.demo_member import SESSION_TIMEOUT_MS, Way
from oncelog.cli.demo_members import Members
from oncelog.cli.demo_outcome import Evidence, Tally, print_evidence, to_json
from oncelog.cli.demo_processors import Processors
from oncelog.cli.demo_producers import Sending
from oncelog.cli.demo_screen import Screen, progress_screen
from oncelog.cli.demo_script import Act, Script
from oncelog.errors import OncelogError
from oncelog.types import IsolationLevel

RECORDS = 100_000
MIN_RECORDS = 1_000
PARTITIONS = 6
PAYMENTS = "payments"
SEED = 7
WATCH_S = 0.05
STALL_TIMEOUT_S = 90.0
DUPLICATES_METRIC = re.compile(r"^oncelog_duplicates_recognised_total (\S+)$", re.MULTILINE)
INTERRUPTED_EXIT_CODE = 130


class DemoStalled(OncelogError):
    """Nothing was acknowledged or booked for a long time, although the broker runs."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="kill the broker, processors and consumers under load, break connections, then audit",
        description=__doc__,
    )
    parser.add_argument(
        "--records", type=_record_count, default=RECORDS, metavar="N",
        help=f"how many orders to send each way (default {RECORDS:,})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the faults (default {SEED})")
    parser.set_defaults(run=run)


def _record_count(text: str) -> int:
    count = int(text)
    if count < MIN_RECORDS:
        raise argparse.ArgumentTypeError(f"fewer than {MIN_RECORDS:,} would be done before the first fault")
    return count


def run(args: argparse.Namespace) -> int:
    console = Console(stderr=args.json)
    try:
        evidence, tally = _perform(Script(args.records), args.seed, console)
    except KeyboardInterrupt:
        print("interrupted; broker, processors and consumers are stopped and their data removed", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    return conclude(evidence, tally, as_json=args.json)


def conclude(evidence: Evidence, tally: Tally, *, as_json: bool) -> int:
    """Show the outcome. The exit code is 0 only if the audit of our way found nothing, and those of the plain way
    found something: faults that harm nobody prove nothing."""
    if as_json:
        print(to_json(evidence, tally))
    else:
        print_evidence(evidence, tally, Console())
    return 0 if evidence.is_clean and evidence.shows_harm and not tally.failures else 1


def _perform(script: Script, seed: int, console: Console) -> tuple[Evidence, Tally]:
    config = {
        "metrics.port": unused_port(),
        "num.partitions": PARTITIONS,
        "group.min.session.timeout.ms": SESSION_TIMEOUT_MS,
    }
    with ExitStack() as stack, progress_screen(console, script.records) as screen:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncelog-demo-")))
        broker = stack.enter_context(Broker(port=unused_port(), config=config))
        screen.tell(f"broker ready at {broker.bootstrap_servers}, clients go through fault proxies (seed {seed})")
        sent = stack.enter_context(Sending(broker, "orders", script, seed, enable_idempotence=True))
        sent_plainly = stack.enter_context(Sending(broker, "orders-plain", script, seed, enable_idempotence=False))
        processors = Processors(broker, sent.topic, PAYMENTS, folder, seed)
        stack.enter_context(processors)
        booked = stack.enter_context(Members(Way.ONCE, broker, PAYMENTS, folder, seed))
        booked_plainly = stack.enter_context(Members(Way.PLAIN, broker, PAYMENTS, folder, seed))
        stage = _Stage(broker, config["metrics.port"], [sent, sent_plainly], processors, [booked, booked_plainly], seed)
        _play(stage, script, screen)
        stage.tally.count_faults(sent.proxy.report(), processors.proxy.report(), booked.proxy.report())
        ledger = sent.load.ledger.elsewhere()
        return Evidence(
            stored=sent.audit(),
            stored_plainly=sent_plainly.audit(),
            processed=processors.audit(ledger, IsolationLevel.READ_COMMITTED),
            processed_plainly=processors.audit(ledger, IsolationLevel.READ_UNCOMMITTED),
            booked=booked.audit(ledger),
            booked_plainly=booked_plainly.audit(ledger),
        ), stage.tally


def _play(stage: _Stage, script: Script, screen: Screen) -> None:
    """Until the script is over and every order has arrived, or nothing happens any more."""
    seen, seen_at = (0, 0), time.monotonic()
    while not (script.is_over and stage.is_complete(script.records)):
        acknowledged = stage.acknowledged
        act = script.due(acknowledged)
        if act is not None and stage.perform(act, screen):
            script.done()
        stage.tend(screen)
        time.sleep(WATCH_S)
        progress = acknowledged, stage.booked
        screen.advance(*progress)
        if progress != seen:
            seen, seen_at = progress, time.monotonic()
        elif time.monotonic() - seen_at > STALL_TIMEOUT_S:
            if acknowledged < script.records or not script.is_over:
                raise DemoStalled(
                    f"nothing happened for {STALL_TIMEOUT_S:.0f} s at {acknowledged:,} acknowledged orders"
                )
            break  # what was not booked by now is lost, and the audit will say so
    screen.advance(stage.acknowledged, stage.booked)
    stage.end(screen)


class _Stage:
    """The broker, the senders, the processors and the groups, and what is done to them."""

    def __init__(
        self,
        broker: Broker,
        metrics_port: int,
        senders: list[Sending],
        processors: Processors,
        groups: list[Members],
        seed: int,
    ) -> None:
        self._broker = broker
        self._processors = processors
        self._metrics_port = metrics_port
        self._senders = senders
        self._groups = groups
        self.tally = Tally(seed=seed)

    @property
    def acknowledged(self) -> int:
        return min(sender.settled for sender in self._senders)

    @property
    def booked(self) -> int:
        return min(group.booked for group in self._groups)

    def is_complete(self, records: int) -> bool:
        return (
            self.acknowledged >= records
            and not self._is_in_trouble
            and all(group.has_booked(records) for group in self._groups)
        )

    @property
    def _is_in_trouble(self) -> bool:
        return any(crew.is_in_trouble for crew in (self._processors, *self._groups))

    def perform(self, act: Act, screen: Screen) -> bool:
        """False if it has to wait: one thing at a time happens to the processes."""
        if act is Act.KILL_BROKER:
            self._kill_broker(screen)
            return True
        if self._is_in_trouble:
            return False
        match act:
            case Act.KILL_PROCESSOR:
                self._processors.set_kill_trap()
            case Act.KILL_MEMBERS:
                for group in self._groups:
                    group.set_kill_trap()
            case Act.SLEEP:
                for group in self._groups:
                    group.set_sleep_trap()
            case Act.JOIN:
                for group in self._groups:
                    group.add_one()
                screen.tell("a third consumer joins each group")
            case Act.LEAVE:
                for group in self._groups:
                    group.let_one_leave()
                screen.tell("a consumer leaves each group")
        return True

    def tend(self, screen: Screen) -> None:
        """See to who is caught, and to who sleeps."""
        if self._processors.kill_victim():
            self.tally.processor_kills += 1
            screen.tell("kill -9 of a processor, its payments stored and not committed: another takes its id over")
        for group in self._groups:
            if group.kill_victim():
                self.tally.member_kills += 1
                screen.tell(f"kill -9 of a consumer ({group.way}), its batch booked and not committed: another starts")
            if group.find_sleeper():
                screen.tell(f"a consumer ({group.way}) falls asleep with a batch in hand")
            if group.wake_sleeper():
                screen.tell(f"it wakes ({group.way}) and does not know that its partitions are another's by now")

    def end(self, screen: Screen) -> None:
        screen.tell("all processors and consumers leave, and the audit counts")
        for crew in (self._processors, *self._groups):
            crew.let_all_leave()
        self._count_duplicates()
        self.tally.failures = [failure for sender in self._senders for failure in sender.load.failures]

    def _kill_broker(self, screen: Screen) -> None:
        self._count_duplicates()
        self._broker.kill()
        begun = time.monotonic()
        self._broker.start()
        self.tally.kills += 1
        self.tally.restarts_ms.append((time.monotonic() - begun) * 1_000)
        screen.tell(f"kill -9 number {self.tally.kills} of the broker: ready after {self.tally.restarts_ms[-1]:.0f} ms")

    def _count_duplicates(self) -> None:
        """Add what the running broker counted; a restarted one counts from 0 again."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            found = DUPLICATES_METRIC.search(answer.read().decode())
        self.tally.duplicates_recognised += int(float(found[1])) if found else 0
