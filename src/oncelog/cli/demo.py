"""`oncelog demo`: orders on their way from `send()` to rows of a database, through faults and kills, once or not.

Act 1. Two producers send the same numbered orders to one broker, each through a fault proxy with the same seeded
script: one as it is by default, one with idempotence switched off. Processors turn the orders of the first one into
payments, in transactions. Two groups of consumers book the payments into SQLite: one with `oncelog.once`, one as
clients do by default, with automatic commits and no other guarantee. Meanwhile the broker, processors and consumers of
both groups are killed with SIGKILL and started again, and consumers join and leave.

Act 2. A Spark pipeline takes what a producer sends through faults from topic to topic and from there into a table of
SQLite. Its driver is killed inside a commit and started again, workers of its executor and the broker are killed.

The audit then shows what became of the orders, and an HTML report how it went. All else is temporary and is removed at
the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from oncelog.cli import demo_clients
from oncelog.cli.demo_broker import MortalBroker
from oncelog.cli.demo_chronicle import Chronicle
from oncelog.cli.demo_outcome import Evidence, Tally, print_evidence, to_json
from oncelog.cli.demo_page import demo_page
from oncelog.cli.demo_play import on_ctrl_c
from oncelog.cli.ending import INTERRUPTED

if TYPE_CHECKING:
    from oncelog.cli.demo_pipeline import Pipeline

RECORDS = 60_000
MIN_RECORDS = 1_000
SEED = 7
REPORT = Path("demo-report")

EPILOG = """\
examples:
  oncelog demo                                      about two minutes; the report is demo-report/index.html
  oncelog demo --without-spark --records 10000
  oncelog demo --seed 12 --report my-report --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="kill broker, processors, consumers and a Spark driver under load, break connections, then audit",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--records", type=_record_count, default=RECORDS, metavar="N",
        help=f"how many orders to send each way (default {RECORDS:,})",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the faults (default {SEED})")
    parser.add_argument("--without-spark", action="store_true", help="only the first act, which takes half a minute")
    parser.add_argument(
        "--report", type=Path, default=REPORT, metavar="FOLDER", help=f"where index.html goes (default {REPORT}/)"
    )
    parser.set_defaults(run=run)


def _record_count(text: str) -> int:
    count = int(text)
    if count < MIN_RECORDS:
        raise argparse.ArgumentTypeError(f"fewer than {MIN_RECORDS:,} would be done before the first fault")
    return count


def run(args: argparse.Namespace) -> int:
    console = Console(stderr=args.json)
    tally, chronicle = Tally(seed=args.seed), Chronicle()
    signal.signal(signal.SIGINT, on_ctrl_c)
    try:
        evidence = _perform(args.records, not args.without_spark, tally, chronicle, console)
    except KeyboardInterrupt:
        print("interrupted; all processes are stopped and their data removed", file=sys.stderr)
        return INTERRUPTED
    code = conclude(evidence, tally, as_json=args.json)
    args.report.mkdir(parents=True, exist_ok=True)
    path = args.report / "index.html"
    path.write_text(demo_page(evidence, tally, chronicle), encoding="utf-8")
    console.print(f"report: {path}", highlight=False, soft_wrap=True)
    return code


def conclude(evidence: Evidence, tally: Tally, *, as_json: bool) -> int:
    """Show the outcome. The exit code is 0 only if the audit of our way found nothing, and those of the plain way
    found something: faults that harm nobody prove nothing."""
    if as_json:
        print(to_json(evidence, tally))
    else:
        print_evidence(evidence, tally, Console())
    return 0 if evidence.is_clean and evidence.shows_harm and not tally.failures else 1


def _perform(records: int, wants_spark: bool, tally: Tally, chronicle: Chronicle, console: Console) -> Evidence:
    with tempfile.TemporaryDirectory(prefix="oncelog-demo-") as name, MortalBroker(chronicle, tally) as broker:
        folder = Path(name)
        console.print(f"broker ready at {broker.bootstrap_servers}", highlight=False)
        shows_spark = wants_spark and _has_spark(console)
        with _pipeline(broker, folder / "spark", tally, chronicle) if shows_spark else nullcontext() as pipeline:
            evidence = demo_clients.perform(broker, records, folder, tally, chronicle, console)
            if pipeline is not None:
                evidence = dataclasses.replace(evidence, shipped=pipeline.perform(records, console))
        broker.count_duplicates()
        return evidence


def _pipeline(broker: MortalBroker, folder: Path, tally: Tally, chronicle: Chronicle) -> Pipeline:
    """Spark takes long to start: it does so during the first act."""
    from oncelog.cli.demo_pipeline import Pipeline

    return Pipeline(broker, folder, tally, chronicle)


def _has_spark(console: Console) -> bool:
    from oncelog.cli.demo_driver import missing_parts

    missing = missing_parts()
    if missing is not None:
        console.print(f"without Spark, so without act 2: {missing}", highlight=False, soft_wrap=True)
    return missing is None
