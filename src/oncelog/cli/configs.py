"""`oncelog configs`: settings of topics, brokers and groups, and the limits of users and client ids."""

from __future__ import annotations

import argparse

from oncelog.admin import Admin, ConfigEntry, ResourceType
from oncelog.admin.values import EntityName
from oncelog.cli.options import WrongUsage, client_config, key_value, settings_of
from oncelog.cli.output import print_json, print_table, say

RESOURCES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}
CLIENTS = ("user", "client-id")
KINDS = (*RESOURCES, *CLIENTS)
CLUSTER_WIDE = ""
SECRET = "(secret)"

EPILOG = """\
KIND is topic, broker, group, user or client-id; NAME is a topic, a broker's node id, a group, a user or a client id.
Without a NAME, broker means all brokers, and user and client-id mean those without limits of their own.

Only what differs from the defaults is described, unless --all is given. The source says who set a value: the topic, the
brokers while they run (dynamic), or their configuration file (static). What users and client ids have are limits, such
as producer_byte_rate; see `oncelog quotas --help`.

examples:
  oncelog configs describe topic orders
  oncelog configs describe broker 1 --all
  oncelog configs alter topic orders -o retention.ms=86400000 --unset segment.bytes
  oncelog configs alter topic orders --append cleanup.policy=compact
  oncelog configs alter broker -o log.retention.ms=604800000        of all brokers
  oncelog configs alter topic orders -o retention.ms=x --check      would it be accepted? Nothing is changed
  oncelog configs alter group billing -o consumer.session.timeout.ms=60000
  oncelog configs alter client-id importer -o producer_byte_rate=1048576
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "configs",
        help="describe and alter the settings of topics, brokers, groups and clients",
        description="Describe and alter the settings of topics, brokers and groups, and the limits of clients.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", help="settings, their values, and who set them")
    _add_whose(describe)
    describe.add_argument("--all", action="store_true", help="defaults as well")
    describe.set_defaults(run=run_describe)
    alter = actions.add_parser("alter", help="change some settings, leave the others")
    _add_whose(alter)
    _add_pairs(alter, "-o", "settings", "set a value")
    alter.add_argument("--unset", metavar="KEY", action="append", default=[], help="go back to the default")
    _add_pairs(alter, "--append", "appended", "add to a list, such as cleanup.policy")
    _add_pairs(alter, "--subtract", "subtracted", "take out of a list")
    alter.add_argument("--check", action="store_true", help="only ask whether it would be accepted")
    alter.set_defaults(run=run_alter)


def _add_whose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"one of {', '.join(KINDS)}")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a topic, a node id, a group, a user or a client id")


def _add_pairs(parser: argparse.ArgumentParser, flag: str, dest: str, text: str) -> None:
    parser.add_argument(flag, dest=dest, metavar="KEY=VALUE", type=key_value, action="append", default=[], help=text)


def run_describe(args: argparse.Namespace) -> int:
    _check_name(args)
    with Admin(client_config(args)) as admin:
        if args.kind in CLIENTS:
            return _describe_limits(admin, args)
        found = admin.describe_configs(RESOURCES[args.kind], args.name or CLUSTER_WIDE)
    entries = [one for _, one in sorted(found.items()) if args.all or not one.is_default]
    if args.json:
        print_json([_as_json(one) for one in entries])
    elif not entries:
        say(f"{_whose(args)} has no settings of its own; --all shows the defaults")
    else:
        print_table(("setting", "value", "source"), [(one.name, _value(one), _source(one)) for one in entries])
    return 0


def _describe_limits(admin: Admin, args: argparse.Namespace) -> int:
    quotas = admin.describe_client_quotas(_entity(args), strict=True)
    limits = sorted(item for quota in quotas for item in quota.limits.items())
    if args.json:
        print_json([{"name": key, "value": value} for key, value in limits])
    elif not limits:
        say(f"{_whose(args)} has no limits of its own; `oncelog quotas list` shows all")
    else:
        print_table(("limit", "value"), [(key, f"{value:.15g}") for key, value in limits])
    return 0


def run_alter(args: argparse.Namespace) -> int:
    _check_name(args)
    assigned, appended, subtracted = map(settings_of, (args.settings, args.appended, args.subtracted))
    if not (assigned or appended or subtracted or args.unset):
        raise WrongUsage("nothing to alter: give -o KEY=VALUE, --unset KEY, --append or --subtract KEY=VALUE")
    with Admin(client_config(args)) as admin:
        if args.kind in CLIENTS:
            if appended or subtracted:
                raise WrongUsage("a limit is a number, not a list: use -o and --unset")
            limits = {key: _number(key, text) for key, text in assigned.items()}
            admin.alter_client_quotas(_entity(args), assign=limits, remove=args.unset, validate_only=args.check)
        else:
            admin.alter_configs(
                RESOURCES[args.kind],
                args.name or CLUSTER_WIDE,
                assign=assigned,
                remove=args.unset,
                append=appended,
                subtract=subtracted,
                validate_only=args.check,
            )
    if args.json:
        print_json({"kind": args.kind, "name": args.name, "altered": not args.check})
    else:
        say(f"{_whose(args)}: {'would be accepted; nothing was changed' if args.check else 'altered'}")
    return 0


def _check_name(args: argparse.Namespace) -> None:
    if args.name is None and args.kind in ("topic", "group"):
        raise WrongUsage(f"which {args.kind}? oncelog configs ... {args.kind} NAME")
    if args.kind == "broker" and args.name is not None and not args.name.isdecimal():
        raise WrongUsage(f"a broker is named by its node id, not {args.name!r}; see `oncelog cluster`")


def _whose(args: argparse.Namespace) -> str:
    if args.name is not None:
        return f"{args.kind} {args.name}"
    return "the brokers together" if args.kind == "broker" else f"the default {args.kind}"


def _entity(args: argparse.Namespace) -> dict[str, EntityName]:
    return {args.kind: args.name}


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongUsage(f"{key} must be a number, not {text!r}") from None


def _value(one: ConfigEntry) -> str | None:
    return SECRET if one.is_sensitive and one.value is None else one.value


def _source(one: ConfigEntry) -> str:
    return one.source.name.lower().replace("_", " ").removesuffix(" config")


def _as_json(one: ConfigEntry) -> dict[str, object]:
    return {
        "name": one.name,
        "value": one.value,
        "source": one.source.name,
        "is_default": one.is_default,
        "read_only": one.read_only,
        "is_sensitive": one.is_sensitive,
    }
