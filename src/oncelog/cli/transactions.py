"""`oncelog transactions`: list, describe, find those that hang, abort."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from oncelog import clock
from oncelog.admin import Admin, HangingTransaction, ProducerState, TransactionDescription, TransactionState
from oncelog.cli.options import WrongUsage, client_config, not_negative, seconds
from oncelog.cli.output import confirm, print_json, print_table, say
from oncelog.cli.producers import add_describe as add_producers
from oncelog.cli.producers import when
from oncelog.errors import OncelogError
from oncelog.types import TopicPartition

EPILOG = """\
A producer with a transactional id writes in transactions: all of it becomes visible to readers of committed records,
or nothing. Its coordinator ends a transaction that stays open for longer than its timeout. Readers of committed
records wait before the first open transaction of a partition.

A transaction hangs when a partition has it open and its coordinator knows nothing of it: it will never end,
and readers wait forever. Find it, and abort it in that partition.

examples:
  oncelog transactions list
  oncelog transactions list --state Ongoing
  oncelog transactions list --older-than 60               open for more than a minute
  oncelog transactions list --pattern 'billing-.*'        the whole id must match
  oncelog transactions describe billing-1                 its state, producer, timeout, partitions
  oncelog transactions producers orders --partition 0     who writes there, and where transactions begin
  oncelog transactions find-hanging                       in all partitions
  oncelog transactions find-hanging --topic orders --partition 0
  oncelog transactions abort --topic orders --partition 0 --start-offset 1234 --yes
  oncelog transactions abort billing-1                    fences the producer, whose open transaction is aborted
"""

OPEN_STATES = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
DEFAULT_MAX_TIMEOUT_MINUTES = 15.0
NEVER_MARKED = 0
"""The coordinator epoch for a producer whose partition has seen no marker of it, as Kafka's tool takes it."""

Subparsers = argparse._SubParsersAction


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "transactions",
        help="list, describe and abort transactions, find those that hang",
        description="Transactions: which are open, since when, where, and how to end what is stuck.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="transactional ids and their states")
    listing.add_argument(
        "--state", action="append", default=[], metavar="S", help=f"one of {', '.join(TransactionState)}"
    )
    listing.add_argument("--older-than", type=seconds, metavar="SECONDS", help="open for longer than this")
    listing.add_argument("--pattern", metavar="RE", help="a regular expression that the whole transactional id matches")
    listing.add_argument("--producer-id", type=not_negative, action="append", default=[], metavar="N")
    listing.set_defaults(run=run_list)
    describe = actions.add_parser("describe", help="state, producer, timeout and partitions of transactional ids")
    describe.add_argument("transactional_ids", nargs="+", metavar="ID")
    describe.set_defaults(run=run_describe)
    add_producers(actions, "producers")
    _add_find_hanging(actions)
    _add_abort(actions)


def _add_find_hanging(actions: Subparsers[argparse.ArgumentParser]) -> None:
    finding = actions.add_parser(
        "find-hanging", help="transactions that are open in partitions, and that will never end"
    )
    finding.add_argument("--broker", type=not_negative, metavar="N", help="only partitions that this broker leads")
    finding.add_argument("--topic", metavar="T", help="only this topic")
    finding.add_argument("--partition", type=not_negative, metavar="P", help="only this partition of --topic")
    finding.add_argument(
        "--max-transaction-timeout", type=number_of_minutes, default=DEFAULT_MAX_TIMEOUT_MINUTES, metavar="MINUTES",
        help="the brokers' transaction.max.timeout.ms; who wrote since then may well go on (default: 15)",
    )  # fmt: skip
    finding.set_defaults(run=run_find_hanging)


def number_of_minutes(text: str) -> float:
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes") from None


def _add_abort(actions: Subparsers[argparse.ArgumentParser]) -> None:
    abort = actions.add_parser(
        "abort",
        help="abort a hanging transaction in a partition, or fence a producer and abort what it has open",
        description="With an ID: fence its producer, whose open transaction is aborted everywhere. Without: write an "
        "abort marker to one partition, for a transaction that hangs there.",
    )
    abort.add_argument("transactional_id", nargs="?", metavar="ID", help="the transactional id of a producer")
    abort.add_argument("--topic", metavar="T", help="with --partition: where a transaction hangs")
    abort.add_argument("--partition", type=not_negative, metavar="P")
    abort.add_argument("--start-offset", type=not_negative, metavar="N", help="where the transaction begins")
    older = abort.add_argument_group("instead of --start-offset, for brokers that cannot tell (all three, not checked)")
    older.add_argument("--producer-id", type=not_negative, metavar="N")
    older.add_argument("--producer-epoch", type=not_negative, metavar="N")
    older.add_argument("--coordinator-epoch", type=not_negative, metavar="N")
    abort.add_argument("--yes", action="store_true", help="do not ask")
    abort.set_defaults(run=run_abort)


# --- looking ----------------------------------------------------------------------------------------------------------


def run_list(args: argparse.Namespace) -> int:
    older_than_ms = None if args.older_than is None else int(args.older_than * 1000)
    # To a broker what ended long ago is old as well; to a person "older than" means that it is still open.
    states = args.state or (() if older_than_ms is None else OPEN_STATES)
    with Admin(client_config(args)) as admin:
        listed = admin.list_transactions(
            states=states, producer_ids=args.producer_id, older_than_ms=older_than_ms, pattern=args.pattern
        )
    if args.json:
        print_json([asdict(one) for one in listed])
        return 0
    columns = ("transactional id", "coordinator", "producer id", "state")
    print_table(columns, [(one.transactional_id, one.coordinator_id, one.producer_id, one.state) for one in listed])
    return 0


def run_describe(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        described = admin.describe_transactions(args.transactional_ids)
    now_ms = clock.wall_ms()
    if args.json:
        print_json([_as_json(one, now_ms) for one in described.values()])
        return 0
    columns = (
        "transactional id", "coordinator", "producer id", "epoch", "state", "timeout ms", "began", "open for s",
        "partitions",
    )  # fmt: skip
    rows = [
        (
            one.transactional_id,
            one.coordinator_id,
            one.producer_id,
            one.producer_epoch,
            one.state,
            one.timeout_ms,
            None if one.start_ms is None else when(one.start_ms),
            _in_seconds(_open_for_ms(one, now_ms)),
            " ".join(map(str, one.partitions)) or None,
        )
        for one in described.values()
    ]
    print_table(columns, rows)
    return 0


def _open_for_ms(one: TransactionDescription, now_ms: int) -> int | None:
    return None if one.start_ms is None or one.state not in OPEN_STATES else max(now_ms - one.start_ms, 0)


def _in_seconds(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else f"{duration_ms / 1000:.1f}"


def _as_json(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    partitions = [partition._asdict() for partition in one.partitions]
    return {**asdict(one), "partitions": partitions, "open_for_ms": _open_for_ms(one, now_ms)}


def run_find_hanging(args: argparse.Namespace) -> int:
    if args.partition is not None and args.topic is None:
        raise WrongUsage("--partition is a partition of which --topic?")
    with Admin(client_config(args)) as admin:
        hanging = admin.find_hanging_transactions(
            _searched(admin, args), max_transaction_timeout_ms=int(args.max_transaction_timeout * 60_000)
        )
    if args.json:
        print_json([_hanging_json(one) for one in hanging])
        return 0
    if not hanging:
        say("no transaction hangs")
        return 0
    columns = (
        "topic", "partition", "start offset", "producer id", "epoch", "coordinator epoch", "transactional id",
        "last write",
    )  # fmt: skip
    print_table(columns, map(_hanging_row, hanging))
    return 0


def _searched(admin: Admin, args: argparse.Namespace) -> list[TopicPartition]:
    topics = [admin.describe_topic(args.topic)] if args.topic else admin.list_topics(include_internal=True)
    found = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
        if args.broker in (None, partition.leader)
    ]
    if args.partition is None:
        return found
    return [TopicPartition(args.topic, args.partition)]


def _hanging_row(one: HangingTransaction) -> tuple[object, ...]:
    producer = one.producer
    return (
        one.partition.topic,
        one.partition.partition,
        producer.current_transaction_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        one.transactional_id,
        when(producer.last_timestamp_ms),
    )


def _hanging_json(one: HangingTransaction) -> dict[str, Any]:
    return {**one.partition._asdict(), **asdict(one.producer), "transactional_id": one.transactional_id}


# --- aborting ---------------------------------------------------------------------------------------------------------


def run_abort(args: argparse.Namespace) -> int:
    claimed = (args.producer_id, args.producer_epoch, args.coordinator_epoch)
    says_where = any(value is not None for value in (args.topic, args.partition, args.start_offset, *claimed))
    if args.transactional_id is not None:
        if says_where:
            raise WrongUsage("give either the ID of a producer, or where a transaction hangs")
        return _abort_by_fencing(args)
    if args.topic is None or args.partition is None:
        raise WrongUsage("which one? Give the ID of its producer, or the --topic and --partition where it hangs")
    partition = TopicPartition(args.topic, args.partition)
    with Admin(client_config(args)) as admin:
        if args.start_offset is not None and claimed == (None, None, None):
            producer = _hanging_at(admin, partition, args.start_offset)
            coordinator_epoch = producer.coordinator_epoch
            claimed = producer.producer_id, producer.producer_epoch, coordinator_epoch or NEVER_MARKED
        elif args.start_offset is not None or None in claimed:
            raise WrongUsage("give --start-offset, or all of --producer-id, --producer-epoch, --coordinator-epoch")
        _confirm(args, f"abort the transaction of producer {claimed[0]} in {partition}")
        admin.abort_hanging(partition, *claimed)
    if args.json:
        names = ("producer_id", "producer_epoch", "coordinator_epoch")
        print_json({**partition._asdict(), **dict(zip(names, claimed, strict=True)), "aborted": True})
    else:
        say(f"the transaction of producer {claimed[0]} in {partition} is aborted")
    return 0


def _hanging_at(admin: Admin, partition: TopicPartition, start_offset: int) -> ProducerState:
    """Whose transaction begins there. Refuses what a coordinator will end: committed elsewhere, and aborted here by
    hand, it would be torn."""
    opened = {
        producer.current_transaction_start_offset: producer
        for producer in admin.describe_producers([partition])[partition]
        if producer.current_transaction_start_offset is not None
    }
    producer = opened.get(start_offset)
    if producer is None:
        begin = (
            f"those that are open begin at {', '.join(map(str, sorted(opened)))}" if opened else "none is open there"
        )
        raise OncelogError(f"no transaction begins at offset {start_offset} of {partition}; {begin}")
    listed = admin.list_transactions(producer_ids=[producer.producer_id])
    for description in admin.describe_transactions(one.transactional_id for one in listed).values():
        if partition in description.partitions:
            name = description.transactional_id
            raise OncelogError(
                f"the transaction of {name!r} in {partition} does not hang: its coordinator will end it; to end it "
                f"now everywhere: oncelog transactions abort {name}"
            )
    return producer


def _abort_by_fencing(args: argparse.Namespace) -> int:
    name = args.transactional_id
    with Admin(client_config(args)) as admin:
        description = admin.describe_transactions([name])[name]  # InitProducerId would create what is not there
        _confirm(args, f"fence the producer of {name!r} ({description.state}) and abort what it has open")
        fenced = admin.fence_producers([name])[name]
    if args.json:
        print_json({"transactional_id": name, "state": description.state, **asdict(fenced)})
    else:
        was_open = description.state == TransactionState.ONGOING
        say(f"the producer of {name} is fenced; {'its transaction is aborted' if was_open else 'it had none open'}")
    return 0


def _confirm(args: argparse.Namespace, what: str) -> None:
    confirm(what, yes=args.yes, alone=f"about to {what}; nothing was done: add --yes to do it")
