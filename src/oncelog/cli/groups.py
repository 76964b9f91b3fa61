"""`oncelog groups`: list, describe (with lag, live if wanted), reset and delete offsets, delete groups."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from typing import Any

from oncelog.admin import Admin, GroupDescription, ListedOffset, OffsetSpec
from oncelog.cli.group_lag import GroupLag, RateWindow, measure
from oncelog.cli.options import WrongUsage, add_yes, client_config, moment, not_negative, seconds, whole_number
from oncelog.cli.output import (
    clear_progress,
    clear_screen,
    confirm,
    describe_error,
    error_as_json,
    print_json,
    print_json_line,
    print_table,
    reader_is_gone,
    say,
    show_progress,
)
from oncelog.client.blocking import ConnectionLost, is_worth_a_retry
from oncelog.clock import wall_ms
from oncelog.errors import KafkaError, OncelogError
from oncelog.types import NO_OFFSET, IsolationLevel, TopicPartition

ASK_MS = 5_000
"""How long --watch waits for an answer before it says that there is none."""

ISOLATION = {level.name.lower(): level for level in IsolationLevel}

EPILOG = """\
examples:
  oncelog groups list
  oncelog groups list --state Empty
  oncelog groups describe billing                        lag of every partition, and who reads it
  oncelog groups describe billing --watch 2              the same, every two seconds, with its rate
  oncelog groups describe billing --watch 10 --json | jq -c '[.wall_ms, .lag]'
  oncelog groups describe billing --isolation read_uncommitted --exact
  oncelog groups members billing
  oncelog groups reset-offsets billing --topic orders --to-earliest             shows what it would do
  oncelog groups reset-offsets billing --topic orders --to-earliest --execute   does it
  oncelog groups reset-offsets billing --topic orders --partition 3 --shift-by -100 --execute
  oncelog groups reset-offsets billing --all-topics --to-datetime 2026-03-01T00:00:00 --execute
  oncelog groups delete-offsets billing --topic orders
  oncelog groups delete billing                          asks first; --yes does not

Lag is what is left to read: records, without markers and, for readers of committed records, aborted ones. Where more
than a few megabytes are left it is a bound, as in "<= 5000", unless --exact reads all of it.

Offsets can be changed and groups deleted only while the group has no members: stop the group's consumers first.
"""

Subparsers = argparse._SubParsersAction


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "groups",
        help="consumer groups: members, lag, offsets",
        description="Consumer groups: their members, their lag, their offsets.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="names, types, states")
    listing.add_argument("--state", action="append", default=[], metavar="S", help="such as Stable or Empty")
    listing.add_argument("--type", action="append", default=[], metavar="T", help="classic or consumer")
    listing.set_defaults(run=run_list)
    describe = actions.add_parser("describe", help="offsets, lag and readers of every partition")
    describe.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")
    describe.add_argument("--watch", type=seconds, metavar="S", help="again every S seconds, until Ctrl-C")
    describe.add_argument(
        "--isolation",
        choices=sorted(ISOLATION),
        default="read_committed",
        help="what the group reads; without transactions both are the same (default: read_committed)",
    )
    describe.add_argument(
        "--exact",
        action="store_true",
        help="read all that is left to count it; otherwise a large lag is shown as an upper bound (<= N)",
    )
    describe.add_argument("--times", type=not_negative, metavar="N", help="with --watch: stop after N times")
    describe.set_defaults(run=run_describe)
    members = actions.add_parser("members", help="who is in a group, with which partitions")
    members.add_argument("group", metavar="GROUP")
    members.set_defaults(run=run_members)
    _add_reset(actions)
    forget = actions.add_parser("delete-offsets", help="forget what a group has committed for topics")
    forget.add_argument("group", metavar="GROUP")
    forget.add_argument("--topic", action="append", required=True, metavar="T")
    forget.add_argument("--partition", type=not_negative, action="append", metavar="P", help="default: all")
    add_yes(forget)
    forget.set_defaults(run=run_delete_offsets)
    delete = actions.add_parser("delete", help="delete groups and all their offsets")
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    add_yes(delete)
    delete.set_defaults(run=run_delete)


def _add_reset(actions: Subparsers[argparse.ArgumentParser]) -> None:
    reset = actions.add_parser("reset-offsets", help="move a group to another place")
    reset.add_argument("group", metavar="GROUP")
    scope = reset.add_mutually_exclusive_group(required=True)
    scope.add_argument("--topic", action="append", metavar="T")
    scope.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets of")
    reset.add_argument("--partition", type=not_negative, action="append", metavar="P", help="default: all")
    place = reset.add_mutually_exclusive_group(required=True)
    place.add_argument("--to-earliest", action="store_true")
    place.add_argument("--to-latest", action="store_true")
    place.add_argument("--to-current", action="store_true", help="what is committed, or the end")
    place.add_argument("--to-offset", type=not_negative, metavar="N")
    place.add_argument("--shift-by", type=whole_number, metavar="N", help="forward, or back with a minus")
    place.add_argument("--to-datetime", type=moment, metavar="YYYY-MM-DDTHH:MM:SS", help="UTC unless it says otherwise")
    reset.add_argument("--execute", action="store_true", help="do it; without, it is only shown")
    reset.set_defaults(run=run_reset)


# --- looking ----------------------------------------------------------------------------------------------------------


def run_list(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        groups = admin.list_groups(states=args.state, types=args.type)
    if args.json:
        print_json(
            [
                {"group_id": one.group_id, "type": one.type, "state": one.state, "protocol_type": one.protocol_type}
                for one in groups
            ]
        )
        return 0
    print_table(("group", "type", "state"), [(one.group_id, one.type, one.state) for one in groups])
    return 0


def run_describe(args: argparse.Namespace) -> int:
    if args.watch is not None:
        return _watch(args)
    if args.times is not None:
        raise WrongUsage("--times is for --watch: how often to look, every how many seconds?")
    with Admin(client_config(args)) as admin:
        lags = _measure_all(admin, args)
    if args.json:
        print_json([lag.as_dict() for lag in lags])
    else:
        _print_lags(lags)
    return 0


def _measure_all(admin: Admin, args: argparse.Namespace) -> list[GroupLag]:
    chosen = args.groups or [group.group_id for group in admin.list_groups()]
    on_read = _show_progress if args.exact else None
    lags = [measure(admin, name, ISOLATION[args.isolation], exact=args.exact, on_read=on_read) for name in chosen]
    clear_progress()
    return lags


def _show_progress(partition: TopicPartition, offset: int, end: int) -> None:
    show_progress(f"{partition}: {offset:,} of {end:,}")


def _watch(args: argparse.Namespace) -> int:
    """Until Ctrl-C. A terminal is redrawn in place; a pipe gets one table after the other, or JSON line by line. A
    broker that goes away is said to be gone, and asked again; one that never was there is an error."""
    windows: dict[str, RateWindow] = {}
    lags: list[GroupLag] | None = None
    gone_since: float | None = None
    left = args.times
    with Admin(client_config(args, default_api_timeout_ms=ASK_MS, request_timeout_ms=ASK_MS)) as admin:
        while left is None or left > 0:
            try:
                lags = _measure_all(admin, args)
            except (ConnectionLost, KafkaError) as error:
                if lags is None or not is_worth_a_retry(error):
                    raise
                gone_since = gone_since or time.time()
                _show_gone(args, lags, gone_since, error)
            else:
                gone_since = None
                now = time.monotonic()
                rates = {lag.group_id: windows.setdefault(lag.group_id, RateWindow()).rate(now, lag) for lag in lags}
                _show_lags(args, lags, rates)
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(args.watch)
            if reader_is_gone():
                break
    return 0


def _show_lags(args: argparse.Namespace, lags: list[GroupLag], rates: dict[str, float | None]) -> None:
    if args.json:
        now_ms = wall_ms()
        for lag in lags:
            print_json_line({"wall_ms": now_ms, **lag.as_dict(), "records_per_second": rates[lag.group_id]})
        return
    clear_screen()
    _print_lags(lags, rates)
    sys.stdout.flush()


def _show_gone(args: argparse.Namespace, lags: list[GroupLag], since: float, error: Exception) -> None:
    if args.json:
        print_json_line({"wall_ms": wall_ms(), "error": error_as_json(error)})
        return
    clear_screen()
    at = time.strftime("%H:%M:%S", time.localtime(since))
    say(f"no answer since {at}: {describe_error(error)}; asking again. What was last known:")
    _print_lags(lags)
    sys.stdout.flush()


def _print_lags(lags: list[GroupLag], rates: dict[str, float | None] | None = None) -> None:
    columns = ("topic", "partition", "committed", "end", "lag", "client", "host", "member")
    for number, lag in enumerate(lags):
        if number:
            say()
        title = f"{lag.group_id}  {lag.type} {lag.state}  lag {lag.total}"
        rate = (rates or {}).get(lag.group_id)
        if rate is not None:
            title += f"  {rate:,.0f} records/s"
        rows = [
            (one.topic, one.partition, one.committed, one.end, one.lag, one.client_id, one.host, one.member_id)
            for one in lag.partitions
        ]
        print_table(columns, rows, title=title, expendable=("member", "host", "client"))


def run_members(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        group = admin.describe_group(args.group)
    if args.json:
        print_json(_members_json(group))
        return 0
    rows = [
        (
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            len(one.assignment),
            " ".join(map(str, sorted(one.assignment))),
        )
        for one in group.members
    ]
    title = f"{group.group_id}  {group.type} {group.state}  {group.assignor or 'no assignor'}"
    print_table(("member", "instance", "client", "host", "count", "partitions"), rows, title=title)
    return 0


def _members_json(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "members": [
            {
                "member_id": one.member_id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "epoch": one.epoch,
                "assignment": [partition._asdict() for partition in sorted(one.assignment)],
            }
            for one in group.members
        ],
    }


# --- changing ---------------------------------------------------------------------------------------------------------


def run_reset(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        committed = {partition: one.offset for partition, one in admin.list_group_offsets(args.group).items()}
        topics = args.topic or sorted({partition.topic for partition in committed})
        if not topics:
            raise OncelogError(f"group {args.group!r} has committed nothing yet; name a --topic")
        partitions = _partitions(admin, topics, args.partition)
        planned = plan_reset(admin, args, partitions, committed)
        if args.execute:
            admin.alter_group_offsets(args.group, planned)
    if args.json:
        print_json(
            [
                {**partition._asdict(), "committed": committed.get(partition), "new": offset, "executed": args.execute}
                for partition, offset in planned.items()
            ]
        )
        return 0
    rows = [(one.topic, one.partition, committed.get(one), offset) for one, offset in planned.items()]
    print_table(("topic", "partition", "committed", "new offset"), rows)
    if not args.execute:
        say("nothing was changed; add --execute to do it")
    return 0


def plan_reset(
    admin: Admin, args: argparse.Namespace, partitions: list[TopicPartition], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where each partition goes: never outside of its log."""
    first = _offsets(admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))
    end = _offsets(admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))
    if args.to_earliest:
        wanted = first
    elif args.to_latest:
        wanted = end
    elif args.to_current:
        wanted = {partition: committed.get(partition, end[partition]) for partition in partitions}
    elif args.to_offset is not None:
        wanted = dict.fromkeys(partitions, args.to_offset)
    elif args.shift_by is not None:
        missing = [partition for partition in partitions if partition not in committed]
        if missing:
            raise OncelogError(f"nothing is committed for {missing[0]}, so there is nothing to shift; use --to-offset")
        wanted = {partition: committed[partition] + args.shift_by for partition in partitions}
    else:
        found = _offsets(admin.list_offsets(dict.fromkeys(partitions, args.to_datetime)))
        wanted = {partition: end[partition] if offset == NO_OFFSET else offset for partition, offset in found.items()}
    return {partition: min(max(wanted[partition], first[partition]), end[partition]) for partition in partitions}


def _offsets(listed: dict[TopicPartition, ListedOffset]) -> dict[TopicPartition, int]:
    return {partition: one.offset for partition, one in listed.items()}


def _partitions(admin: Admin, topics: Iterable[str], numbers: list[int] | None) -> list[TopicPartition]:
    found = []
    for topic in topics:
        indexes = [partition.index for partition in admin.describe_topic(topic).partitions]
        unknown = set(numbers or ()).difference(indexes)
        if unknown:
            raise OncelogError(f"topic {topic!r} has the partitions 0 to {len(indexes) - 1}, and no {min(unknown)}")
        found += [TopicPartition(topic, index) for index in numbers or indexes]
    return found


def run_delete_offsets(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        partitions = _partitions(admin, args.topic, args.partition)
        confirm(f"forget what group {args.group} has committed for {_named(partitions)}", yes=args.yes)
        admin.delete_group_offsets(args.group, partitions)
    return _tell(args, args.group, f"has no offsets of {_named(partitions)} any more")


def run_delete(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        confirm(f"delete {_named_groups(args.groups)} with all committed offsets", yes=args.yes)
        for group in args.groups:
            admin.delete_group(group)
            _tell(args, group, "deleted")
    return 0


def _named(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _named_groups(groups: list[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"the groups {', '.join(groups)}"


def _tell(args: argparse.Namespace, group: str, what: str) -> int:
    if args.json:
        print_json({"group_id": group, "done": what})
    else:
        say(f"group {group} {what}")
    return 0
