"""`oncelog topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import argparse
from typing import Any

from oncelog.admin import (
    BROKER_DEFAULT,
    Admin,
    ConfigEntry,
    ConfigSource,
    ListedOffset,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from oncelog.cli.options import WrongUsage, add_yes, client_config, key_value, positive, settings_of
from oncelog.cli.output import confirm, print_json, print_table, say
from oncelog.client.settings import nearest
from oncelog.errors import TopicAlreadyExists, UnknownTopicOrPartition
from oncelog.types import TopicPartition

EPILOG = """\
examples:
  oncelog topics create orders --partitions 3 -o retention.ms=86400000
  oncelog topics list
  oncelog topics describe orders
  oncelog topics alter orders --partitions 6 -o cleanup.policy=compact --unset retention.ms
  oncelog topics delete orders                       asks first; --yes does not
"""

Subparsers = argparse._SubParsersAction


def add_parser(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "topics",
        help="create, list, describe, alter and delete topics",
        description="Create, list, describe, alter and delete topics.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_create(actions)
    listing = actions.add_parser("list", help="names, partitions, replication")
    listing.add_argument("--internal", action="store_true", help="internal topics as well")
    listing.set_defaults(run=run_list)
    describe = actions.add_parser("describe", help="partitions, leaders, offsets, settings")
    describe.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    describe.set_defaults(run=run_describe)
    _add_alter(actions)
    delete = actions.add_parser("delete", help="delete topics and all their records")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="a topic that does not exist is not an error")
    add_yes(delete)
    delete.set_defaults(run=run_delete)


def _add_create(actions: Subparsers[argparse.ArgumentParser]) -> None:
    create = actions.add_parser("create", help="create a topic")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--partitions", type=positive, metavar="P", help="default: the broker's num.partitions")
    create.add_argument(
        "--replication-factor", type=positive, metavar="R", help="default: the broker's default.replication.factor"
    )
    _add_settings(create, "a topic config, such as retention.ms=60000")
    create.add_argument("--if-not-exists", action="store_true", help="a topic that exists already is not an error")
    create.set_defaults(run=run_create)


def _add_alter(actions: Subparsers[argparse.ArgumentParser]) -> None:
    alter = actions.add_parser("alter", help="more partitions, other settings")
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("--partitions", type=positive, metavar="P", help="grow to so many (keys may change partition)")
    _add_settings(alter, "set a topic config")
    alter.add_argument(
        "--unset", metavar="KEY", action="append", default=[], help="take a config back to the broker's default"
    )
    alter.set_defaults(run=run_alter)


def _add_settings(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "-o", dest="settings", metavar="KEY=VALUE", type=key_value, action="append", default=[], help=text
    )


def run_create(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        try:
            created = admin.create_topic(
                args.name,
                partitions=args.partitions or BROKER_DEFAULT,
                replication_factor=args.replication_factor or BROKER_DEFAULT,
                configs=settings_of(args.settings),
            )
        except TopicAlreadyExists:
            if not args.if_not_exists:
                raise
            topic = admin.describe_topic(args.name)
            return _tell(args, "exists already", topic.name, topic_id=str(topic.topic_id), created=False)
    more = {"partitions": created.partitions, "replication_factor": created.replication_factor}
    return _tell(args, "created", created.name, topic_id=str(created.topic_id), created=True, **more)


def run_list(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        topics = admin.list_topics(include_internal=args.internal)
    if args.json:
        print_json(
            [
                {
                    "name": topic.name,
                    "topic_id": str(topic.topic_id),
                    "partitions": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
        return 0
    rows = [(topic.name, len(topic.partitions), topic.replication_factor) for topic in topics]
    print_table(("topic", "partitions", "replication"), rows)
    return 0


def run_describe(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        names = args.names or [topic.name for topic in admin.list_topics()]
        described = [_describe(admin, name) for name in names]
    if args.json:
        print_json(described)
        return 0
    for number, topic in enumerate(described):
        if number:
            say()
        _print_topic(topic)
    return 0


def _describe(admin: Admin, name: str) -> dict[str, Any]:
    topic = admin.describe_topic(name)
    configs = admin.describe_configs(ResourceType.TOPIC, name)
    led = [TopicPartition(name, partition.index) for partition in topic.partitions if partition.leader >= 0]
    first = admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    end = admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))
    return {
        "name": name,
        "topic_id": str(topic.topic_id),
        "replication_factor": topic.replication_factor,
        "configs": {entry.name: entry.value for entry in configs.values() if _is_own(entry)},
        "partitions": _partitions(topic, first, end),
    }


def _is_own(entry: ConfigEntry) -> bool:
    """Whether the topic itself says so, and not the broker's config or Kafka's defaults."""
    return entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG


def _partitions(
    topic: TopicDescription, first: dict[TopicPartition, ListedOffset], end: dict[TopicPartition, ListedOffset]
) -> list[dict[str, Any]]:
    def offset(offsets: dict[TopicPartition, ListedOffset], index: int) -> int | None:
        listed = offsets.get(TopicPartition(topic.name, index))
        return listed.offset if listed else None

    return [
        {
            "partition": partition.index,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "first_offset": offset(first, partition.index),
            "end_offset": offset(end, partition.index),
        }
        for partition in topic.partitions
    ]


def _print_topic(topic: dict[str, Any]) -> None:
    settings = " ".join(f"{key}={value}" for key, value in topic["configs"].items())
    title = f"{topic['name']}  id {topic['topic_id']}{'  ' + settings if settings else ''}"
    columns = ("partition", "leader", "replicas", "isr", "first offset", "end offset")
    keys = [name.replace(" ", "_") for name in columns]
    print_table(columns, [[one[key] for key in keys] for one in topic["partitions"]], title=title)


def run_alter(args: argparse.Namespace) -> int:
    if not (args.partitions or args.settings or args.unset):
        raise WrongUsage("nothing to alter: give --partitions, -o KEY=VALUE or --unset KEY")
    with Admin(client_config(args)) as admin:
        if args.settings or args.unset:
            admin.alter_configs(ResourceType.TOPIC, args.name, assign=settings_of(args.settings), remove=args.unset)
        if args.partitions:
            admin.create_partitions(args.name, args.partitions)
    return _tell(args, "altered", args.name, altered=True)


def run_delete(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        confirm(f"delete {_named(args.names)} with all records", yes=args.yes)
        for name in args.names:
            try:
                admin.delete_topic(name)
            except UnknownTopicOrPartition:
                if not args.if_exists:
                    near = nearest(name, (topic.name for topic in admin.list_topics()))
                    hint = "" if near is None else f"did you mean {near}? "
                    text = f"topic {name!r} does not exist; {hint}See `oncelog topics list`"
                    raise UnknownTopicOrPartition(text) from None
            else:
                _tell(args, "deleted", name, deleted=True)
    return 0


def _named(names: list[str]) -> str:
    return f"topic {names[0]}" if len(names) == 1 else f"the topics {', '.join(names)}"


def _tell(args: argparse.Namespace, what: str, name: str, **facts: object) -> int:
    if args.json:
        print_json({"name": name, **facts})
    else:
        say(f"topic {name} {what}")
    return 0
