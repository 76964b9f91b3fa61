"""`oncelog producers`: who writes to a topic, as the leaders of its partitions remember it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime

from oncelog.admin import Admin, ProducerState
from oncelog.cli.options import client_config, not_negative
from oncelog.cli.output import print_json, print_table
from oncelog.types import NO_TIMESTAMP, TopicPartition

EPILOG = """\
A partition remembers of every producer id its epoch and last sequence number: this is how duplicates are recognised.

examples:
  oncelog producers list                       every producer that any topic remembers
  oncelog producers list orders payments
  oncelog producers describe orders --partition 0
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "producers",
        help="who writes to a topic: producer ids, epochs, sequences",
        description="Who writes to a topic: producer ids, epochs, sequence numbers, open transactions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="one line per producer id")
    listing.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    listing.set_defaults(run=run_list)
    add_describe(actions, "describe")


def add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> None:
    describe = actions.add_parser(name, help="one line per partition and producer id")
    describe.add_argument("topic", metavar="TOPIC")
    describe.add_argument("--partition", type=not_negative, metavar="P", help="default: all")
    describe.set_defaults(run=run_describe)


def run_list(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        topics = args.topics or [topic.name for topic in admin.list_topics(include_internal=True)]
        states = admin.describe_producers(_partitions(admin, topics))
    producers = summarise(states)
    if args.json:
        print_json(producers)
        return 0
    columns = ("producer id", "epoch", "partitions", "open transactions", "last write")
    rows = [
        (
            one["producer_id"],
            one["producer_epoch"],
            one["partitions"],
            one["open_transactions"],
            when(one["last_timestamp_ms"]),
        )
        for one in producers
    ]
    print_table(columns, rows)
    return 0


def summarise(states: dict[TopicPartition, tuple[ProducerState, ...]]) -> list[dict[str, int]]:
    """One entry per producer id, with its newest epoch and write."""
    producers: dict[int, dict[str, int]] = {}
    for producer in (producer for found in states.values() for producer in found):
        entry = producers.setdefault(
            producer.producer_id,
            {
                "producer_id": producer.producer_id,
                "producer_epoch": -1,
                "partitions": 0,
                "open_transactions": 0,
                "last_timestamp_ms": NO_TIMESTAMP,
            },
        )
        entry["producer_epoch"] = max(entry["producer_epoch"], producer.producer_epoch)
        entry["partitions"] += 1
        entry["open_transactions"] += producer.current_transaction_start_offset is not None
        entry["last_timestamp_ms"] = max(entry["last_timestamp_ms"], producer.last_timestamp_ms)
    return sorted(producers.values(), key=lambda entry: entry["producer_id"])


def run_describe(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        if args.partition is None:
            partitions = _partitions(admin, [args.topic])
        else:
            partitions = [TopicPartition(args.topic, args.partition)]
        states = admin.describe_producers(partitions)
    if args.json:
        print_json([{**partition._asdict(), **asdict(one)} for partition, found in states.items() for one in found])
        return 0
    columns = (
        "partition", "producer id", "epoch", "last sequence", "coordinator epoch", "transaction start", "last write",
    )  # fmt: skip
    rows = [
        (
            partition.partition,
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.coordinator_epoch,
            one.current_transaction_start_offset,
            when(one.last_timestamp_ms),
        )
        for partition, found in states.items()
        for one in found
    ]
    print_table(columns, rows)
    return 0


def _partitions(admin: Admin, topics: list[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition.index)
        for topic in topics
        for partition in admin.describe_topic(topic).partitions
    ]


def when(timestamp_ms: int) -> str | None:
    if timestamp_ms == NO_TIMESTAMP:
        return None
    at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds") + "Z"
