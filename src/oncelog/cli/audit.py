"""`oncelog audit TOPIC...`: lost, duplicated and out of order records, from the ids that the records carry.

Reads the topics in this process, or as a Spark job (`--spark`); what comes out is the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oncelog.audit.account import Audit, Ledger
from oncelog.audit.bounds import bins_of, bounds_of
from oncelog.audit.ids import ID_HEADER, RecordId, id_of_record
from oncelog.audit.spread import SpreadCounter, TopicAudit, all_partitions
from oncelog.cli.options import WrongUsage, client_config
from oncelog.cli.output import print_json
from oncelog.cli.reader import Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.errors import OncelogError
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import IsolationLevel, TopicPartition

HOW_TO_NUMBER = (
    "number the records per producer and partition (or key), and put STREAM/NUMBER, such as 'shop-3/orders-0/17', "
    f"into the header {ID_HEADER!r} or at the start of the value, followed by a space"
)
EPILOG = f"""\
To make records auditable, {HOW_TO_NUMBER}.
Each topic is judged by itself. Exit code 0 if nothing is found, 1 otherwise.

examples:
  oncelog audit orders
  oncelog audit orders payments --json
  oncelog audit orders --isolation read_committed            without what was aborted
  oncelog audit payments --sent orders                       what was lost on the way from orders to payments
  oncelog audit orders --html report.html                    with plots
  oncelog audit orders --spark                               a topic too large for one process
  oncelog audit orders --spark --master spark://host:7077    on a cluster
"""
ISOLATION = {level.name.lower(): level for level in IsolationLevel}
DEFAULT_MASTER = "local[*]"

IdOf = Callable[[ConsumerRecord], RecordId | None]
"""How an audit recognises a record."""


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
    parser.add_argument("--sent", metavar="TOPIC", help="what was sent is what this topic holds, not what numbers tell")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a report with plots as well")
    parser.add_argument("--spark", action="store_true", help="read the topics by a Spark job")
    parser.add_argument("--master", help=f"of the Spark job (default: {DEFAULT_MASTER}); implies --spark")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    topics = list(dict.fromkeys(args.topics))
    if args.client_settings and (args.spark or args.master):
        raise WrongUsage("-X is for the client of this process; a Spark job has clients of its own")
    audits = _audit_on_spark(args, topics) if args.spark or args.master else _audit_here(args, topics)
    total = all_partitions(audits).total
    if total.unnumbered and not total.stored:
        raise OncelogError(f"no record of {', '.join(topics)} carries an id: {HOW_TO_NUMBER}")
    return _show(args, audits)


def _show(args: argparse.Namespace, audits: list[TopicAudit]) -> int:
    from oncelog.cli.audit_table import print_report, to_dict

    report = all_partitions(audits)
    if args.html:
        from oncelog.report.audit_page import audit_page

        sent = f" against what {args.sent} holds" if args.sent else ""
        args.html.write_text(audit_page(audits, subtitle=f"{args.bootstrap_server}, {args.isolation}{sent}"))
    if args.json:
        print_json(to_dict(report))
    else:
        print_report(report)
    return 0 if report.clean else 1


def _audit_here(args: argparse.Namespace, topics: list[str]) -> list[TopicAudit]:
    isolation = ISOLATION[args.isolation]
    with audit_client(client_config(args)) as client:
        ledger = None if args.sent is None else ledger_of_topic(client, args.sent, isolation)
        return [audit_topic(client, topic, isolation, ledger) for topic in topics]


def _audit_on_spark(args: argparse.Namespace, topics: list[str]) -> list[TopicAudit]:
    try:
        from oncelog.spark.audit import audit_topics
    except ImportError as missing:
        raise OncelogError(f"--spark needs PySpark ({missing}): pip install 'oncelog[spark]'") from None
    master = args.master or DEFAULT_MASTER
    return audit_topics(args.bootstrap_server, topics, ISOLATION[args.isolation], sent=args.sent, master=master)


def audit_topic(
    client: BlockingClient, topic: str, isolation: IsolationLevel, ledger: Ledger | None = None
) -> TopicAudit:
    audit = Audit(ledger)
    bounds = bounds_of(client, topic, isolation)
    for partition, (start, _) in bounds.items():
        audit.open_partition(partition, start)
    counter = SpreadCounter(bins_of(bounds))
    for partition, record in _records(client, topic, isolation):
        counter.add(record.offset, audit.observe(partition, record.offset, carried_id(record)))
    return TopicAudit(topic, audit.report(), counter.spread())


def carried_id(record: ConsumerRecord) -> RecordId | None:
    return id_of_record(record.value, record.headers)


def ledger_of_topic(client: BlockingClient, topic: str, isolation: IsolationLevel, id_of: IdOf = carried_id) -> Ledger:
    """As if whoever filled the topic had kept a ledger: each id that it holds, once."""
    ledger = Ledger()
    for partition, record in _records(client, topic, isolation):
        record_id = id_of(record)
        if record_id is not None and not ledger.has(record_id):
            ledger.sent(record_id, partition)
            ledger.acknowledged(record_id, partition)
    return ledger


def observe_topic(
    audit: Audit,
    bootstrap_servers: str,
    topic: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    id_of: IdOf = carried_id,
) -> None:
    """Let the audit see every record that the topic holds now, partition by partition in the order of the offsets."""
    with audit_client(bootstrap_servers) as client:
        for partition, (start, _) in bounds_of(client, topic, isolation).items():
            audit.open_partition(partition, start)
        for partition, record in _records(client, topic, isolation):
            audit.observe(partition, record.offset, id_of(record))


def _records(
    client: BlockingClient, topic: str, isolation: IsolationLevel
) -> Iterator[tuple[TopicPartition, ConsumerRecord]]:
    """One partition after the other: which of two copies is called the second must not depend on who answers first."""
    for index in sorted(partition.index for partition in client.topic(topic).partitions):
        reader = TopicReader(client, topic, [index], isolation)
        reader.start(Start(0), until_end=True)
        while not reader.finished:
            yield from reader.poll()


def audit_client(servers: str | dict[str, Any]) -> BlockingClient:
    """At these addresses, or as these settings say."""
    settings = servers if isinstance(servers, dict) else {"bootstrap.servers": servers}
    return BlockingClient(ClientConfig.of({"client.id": "oncelog-audit", **settings}))
