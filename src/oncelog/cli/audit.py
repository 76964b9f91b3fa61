"""`oncelog audit TOPIC...`: lost, duplicated and out of order records, from the ids that the records carry."""

from __future__ import annotations

import argparse

from rich.console import Console

from oncelog.audit.account import Audit
from oncelog.audit.ids import ID_HEADER
from oncelog.audit.reader import read_topic
from oncelog.cli.audit_table import print_report, to_json
from oncelog.errors import OncelogError

HOW_TO_NUMBER = (
    "number the records per producer and partition (or key), and put STREAM/NUMBER, such as 'shop-3/orders-0/17', "
    f"into the header {ID_HEADER!r} or at the start of the value, followed by a space"
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="lost, duplicated and out of order records of topics",
        description=f"{__doc__} To make records auditable, {HOW_TO_NUMBER}. Exit code 1 if anything is found.",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    audit = Audit()
    for topic in args.topics:
        read_topic(args.bootstrap_server, topic, audit)
    report = audit.report()
    if report.total.unnumbered and not report.total.stored:
        raise OncelogError(f"no record of {', '.join(args.topics)} carries an id: {HOW_TO_NUMBER}")
    if args.json:
        print(to_json(report))
    else:
        print_report(report, Console())
    return 0 if report.clean else 1
