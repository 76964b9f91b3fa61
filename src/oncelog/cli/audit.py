"""`oncelog audit TOPIC...`: lost, duplicated and out of order records, from the ids that the records carry."""

from __future__ import annotations

import argparse

from oncelog.audit.account import Audit
from oncelog.audit.ids import ID_HEADER, id_of_record
from oncelog.cli.reader import Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.leaders import EARLIEST_OFFSET, list_offsets
from oncelog.errors import OncelogError
from oncelog.types import IsolationLevel, TopicPartition

HOW_TO_NUMBER = (
    "number the records per producer and partition (or key), and put STREAM/NUMBER, such as 'shop-3/orders-0/17', "
    f"into the header {ID_HEADER!r} or at the start of the value, followed by a space"
)
EPILOG = f"""\
To make records auditable, {HOW_TO_NUMBER}.
Exit code 0 if nothing is found, 1 otherwise.

examples:
  oncelog audit orders
  oncelog audit orders payments --json
  oncelog audit orders --isolation read_committed            without what was aborted
"""
ISOLATION = {level.name.lower(): level for level in IsolationLevel}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="lost, duplicated and out of order records of topics",
        description="Report lost, duplicated and out of order records, from the ids that the records carry.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--isolation", choices=sorted(ISOLATION), default="read_uncommitted")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from oncelog.cli.audit_table import print_report, to_json

    audit = Audit()
    for topic in args.topics:
        observe_topic(audit, args.bootstrap_server, topic, ISOLATION[args.isolation])
    report = audit.report()
    if report.total.unnumbered and not report.total.stored:
        raise OncelogError(f"no record of {', '.join(args.topics)} carries an id: {HOW_TO_NUMBER}")
    if args.json:
        print(to_json(report))
    else:
        print_report(report, Console())
    return 0 if report.clean else 1


def observe_topic(
    audit: Audit,
    bootstrap_servers: str,
    topic: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> None:
    """Let the audit see every record that the topic holds now, partition by partition in the order of the offsets."""
    with BlockingClient(ClientConfig.of(bootstrap_servers, client_id="oncelog-audit")) as client:
        partitions = [TopicPartition(topic, partition.index) for partition in client.topic(topic).partitions]
        starts = list_offsets(client, dict.fromkeys(partitions, EARLIEST_OFFSET), isolation)
        for partition, start in starts.items():
            audit.open_partition(partition, start.offset)
        reader = TopicReader(client, topic, None, isolation)
        reader.start(Start(0), until_end=True)
        while not reader.finished:
            for partition, record in reader.poll():
                audit.observe(partition, record.offset, id_of_record(record.value, record.headers))
