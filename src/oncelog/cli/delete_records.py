"""`oncelog delete-records`: the oldest records of a topic, up to an offset, a time, or all of them."""

from __future__ import annotations

import argparse

from oncelog.admin import ALL_RECORDS, Admin, OffsetSpec
from oncelog.cli.options import add_yes, client_config, moment, not_negative
from oncelog.cli.output import confirm, print_json, print_table
from oncelog.errors import OffsetOutOfRange, OncelogError
from oncelog.printable import counted
from oncelog.types import NO_OFFSET, TopicPartition

EPILOG = """\
Records are deleted from the start of each partition on; those that remain keep their offsets. Groups that have not read
the deleted ones go on at the first that is left. It cannot be taken back.

examples:
  oncelog delete-records orders --all                                   everything that is there now
  oncelog delete-records orders --partition 0 --before-offset 4711
  oncelog delete-records orders --before-datetime 2026-03-01T00:00:00 --yes
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "delete-records",
        help="delete the oldest records of a topic",
        description="Delete the oldest records of a topic.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partition", dest="partitions", type=not_negative, action="append", metavar="P", help="default: all"
    )
    until = parser.add_mutually_exclusive_group(required=True)
    until.add_argument("--before-offset", type=not_negative, metavar="N", help="the records before this offset")
    until.add_argument(
        "--before-datetime", type=moment, metavar="YYYY-MM-DDTHH:MM:SS",
        help="the records before the first one of that time or later; UTC unless it says otherwise",
    )  # fmt: skip
    until.add_argument("--all", action="store_true", help="all records that are there now")
    add_yes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        partitions = _partitions(admin, args)
        first = _offsets(admin, partitions, OffsetSpec.EARLIEST)
        end = _offsets(admin, partitions, OffsetSpec.LATEST)
        before = _before(admin, args, partitions, first, end)
        count = sum((end[one] if offset == ALL_RECORDS else offset) - first[one] for one, offset in before.items())
        where = ", ".join(map(str, partitions)) if args.partitions else f"all partitions of {args.topic}"
        confirm(f"delete up to {counted(count, 'record')} from {where}", yes=args.yes)
        low = admin.delete_records(before)
    if args.json:
        print_json([{**one._asdict(), "first_offset": low[one], "was": first[one]} for one in partitions])
    else:
        rows = [(one.partition, first[one], low[one], end[one]) for one in partitions]
        print_table(("partition", "first offset was", "is now", "end offset"), rows)
    return 0


def _partitions(admin: Admin, args: argparse.Namespace) -> list[TopicPartition]:
    there = [partition.index for partition in admin.describe_topic(args.topic).partitions]
    for index in args.partitions or ():
        if index not in there:
            raise OncelogError(f"topic {args.topic!r} has {counted(len(there), 'partition')}, and no partition {index}")
    return [TopicPartition(args.topic, index) for index in sorted(set(args.partitions or there))]


def _offsets(admin: Admin, partitions: list[TopicPartition], spec: int) -> dict[TopicPartition, int]:
    return {partition: one.offset for partition, one in admin.list_offsets(dict.fromkeys(partitions, spec)).items()}


def _before(
    admin: Admin,
    args: argparse.Namespace,
    partitions: list[TopicPartition],
    first: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """What lies before these offsets goes. Checked for all partitions before any of them is touched."""
    if args.all:
        return dict.fromkeys(partitions, ALL_RECORDS)
    if args.before_datetime is not None:
        found = _offsets(admin, partitions, args.before_datetime)
        # No record is of that time or later: all of them are older.
        return {one: end[one] if offset == NO_OFFSET else offset for one, offset in found.items()}
    for one in partitions:
        if args.before_offset > end[one]:
            raise OffsetOutOfRange(f"{one} ends at offset {end[one]}, before {args.before_offset}; nothing was deleted")
    return {one: max(args.before_offset, first[one]) for one in partitions}
