"""`oncelog quotas`: how much users and client ids may send, read and ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from oncelog.admin import Admin, ClientQuota
from oncelog.admin.values import EntityName
from oncelog.cli.options import WrongUsage, client_config, key_value, settings_of
from oncelog.cli.output import print_json, print_table, say

EPILOG = """\
limits:
  producer_byte_rate    bytes per second that may be sent
  consumer_byte_rate    bytes per second that may be read
  request_percentage    share of a broker thread's time that all requests together may take

Who is above a limit is made to wait, and loses nothing. Of several limits for a client the most particular holds:
user and client id, user and default client id, user; the same for the default user; client id; default client id.
Without authentication every user is called ANONYMOUS.

examples:
  oncelog quotas alter --client-id importer -o producer_byte_rate=1048576
  oncelog quotas alter --default-client-id -o consumer_byte_rate=10485760 -o request_percentage=50
  oncelog quotas alter --user alice --client-id web --unset producer_byte_rate
  oncelog quotas list
  oncelog quotas describe --client-id importer
"""

DEFAULT_NAME = "<default>"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "quotas",
        help="list, describe and alter the limits of users and client ids",
        description="List, describe and alter the limits of users and client ids.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every limit there is")
    listing.set_defaults(run=run_list)
    describe = actions.add_parser("describe", help="the limits of one user, client id, or client id of a user")
    _add_entity(describe)
    describe.set_defaults(run=run_describe)
    alter = actions.add_parser("alter", help="set limits, or take them away")
    _add_entity(alter)
    alter.add_argument(
        "-o", dest="settings", metavar="KEY=VALUE", type=key_value, action="append", default=[],
        help="set a limit, such as producer_byte_rate=1048576",
    )  # fmt: skip
    alter.add_argument("--unset", metavar="KEY", action="append", default=[], help="take a limit away")
    alter.set_defaults(run=run_alter)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    user = parser.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME")
    user.add_argument("--default-user", action="store_true", help="every user without a limit of their own")
    client = parser.add_mutually_exclusive_group()
    client.add_argument("--client-id", metavar="NAME")
    client.add_argument("--default-client-id", action="store_true", help="every client id without a limit of its own")


def run_list(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        quotas = admin.describe_client_quotas()
    _print(args, quotas)
    return 0


def run_describe(args: argparse.Namespace) -> int:
    entity = _entity(args)
    with Admin(client_config(args)) as admin:
        quotas = admin.describe_client_quotas(entity, strict=True)
    if not quotas and not args.json:
        say(f"{_name(entity)} has no limit of its own; see `oncelog quotas list`")
        return 0
    _print(args, quotas)
    return 0


def run_alter(args: argparse.Namespace) -> int:
    entity = _entity(args)
    limits = {key: _number(key, text) for key, text in settings_of(args.settings).items()}
    if not (limits or args.unset):
        raise WrongUsage("nothing to alter: give -o KEY=VALUE or --unset KEY")
    with Admin(client_config(args)) as admin:
        admin.alter_client_quotas(entity, assign=limits, remove=args.unset)
    if args.json:
        print_json({"entity": entity, "altered": True})
    else:
        say(f"limits of {_name(entity)} altered")
    return 0


def _entity(args: argparse.Namespace) -> dict[str, EntityName]:
    entity: dict[str, EntityName] = {}
    if args.user is not None or args.default_user:
        entity["user"] = args.user
    if args.client_id is not None or args.default_client_id:
        entity["client-id"] = args.client_id
    if not entity:
        raise WrongUsage("whose limits? Give --user, --default-user, --client-id or --default-client-id")
    return entity


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongUsage(f"{key} must be a number, not {text!r}") from None


def _name(entity: Mapping[str, EntityName]) -> str:
    return ", ".join(f"{kind} {DEFAULT_NAME if name is None else name}" for kind, name in entity.items())


def _print(args: argparse.Namespace, quotas: list[ClientQuota]) -> None:
    if args.json:
        print_json([{"entity": quota.entity, "limits": quota.limits} for quota in quotas])
        return
    rows = [
        (_name(quota.entity), key, f"{value:.15g}") for quota in quotas for key, value in sorted(quota.limits.items())
    ]
    print_table(("whose", "limit", "value"), rows)
