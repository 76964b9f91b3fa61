"""`oncelog cluster`: what there is, and where: brokers, controller, features, topics, what is offline."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oncelog.admin import Admin, ClusterDescription, TopicDescription
from oncelog.cli.options import client_config
from oncelog.cli.output import print_json, print_table, say
from oncelog.client.blocking import ConnectionLost
from oncelog.client.metadata import NO_LEADER, Node

MAX_NAMED = 20
"""Partitions that are named one by one; --json names all."""

EPILOG = """\
"answers" is asked of each broker at the address that it gives to clients (advertised.listeners): where it says no while
the broker runs, clients cannot reach it either. A partition is offline when no broker leads it: it cannot be written to
or read from. It is under-replicated when a replica lags behind or its broker is gone.

Feature levels are what the brokers agreed on; transaction.version=2 is Kafka's newer protocol of transactions,
group.version=1 the newer one of consumer groups.

examples:
  oncelog cluster
  oncelog cluster -b kafka-1:9092,kafka-2:9092
  oncelog cluster --json | jq .offline_partitions
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "cluster",
        help="what there is: brokers, controller, features, topics, what is offline",
        description="Show a cluster: its brokers, controller, features, topics, and what is offline.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with Admin(client_config(args)) as admin:
        cluster = admin.describe_cluster()
        topics = admin.list_topics(include_internal=True)
        features = admin.describe_features()
        answers = {node.node_id: _answer(admin, node) for node in cluster.nodes}
    summary = summarise(cluster, topics, features, answers)
    if args.json:
        print_json(summary)
    else:
        _print(summary)
    return 0


def _answer(admin: Admin, node: Node) -> str | None:
    """None if it answers, else what happens instead."""
    try:
        admin.describe_features(node)
    except ConnectionLost as error:
        return str(error)
    return None


def summarise(
    cluster: ClusterDescription,
    topics: Sequence[TopicDescription],
    features: dict[str, int],
    answers: dict[int, str | None],
) -> dict[str, Any]:
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    leads = Counter(partition.leader for _, partition in partitions)
    holds = Counter(replica for _, partition in partitions for replica in partition.replicas)
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "features": dict(sorted(features.items())),
        "brokers": [
            {
                "node_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_controller": node.node_id == cluster.controller_id,
                "leads": leads[node.node_id],
                "replicas": holds[node.node_id],
                "answers": answers[node.node_id] is None,
                "problem": answers[node.node_id],
            }
            for node in cluster.nodes
        ],
        "topics": sum(not topic.is_internal for topic in topics),
        "internal_topics": sum(topic.is_internal for topic in topics),
        "partitions": len(partitions),
        "offline_partitions": [f"{name}-{one.index}" for name, one in partitions if one.leader == NO_LEADER],
        "under_replicated_partitions": [
            f"{name}-{one.index}"
            for name, one in partitions
            if one.leader != NO_LEADER and len(one.isr) < len(one.replicas)
        ],
    }


def _print(summary: dict[str, Any]) -> None:
    offline, behind = summary["offline_partitions"], summary["under_replicated_partitions"]
    say(f"cluster     {summary['cluster_id']}")
    say(f"controller  {summary['controller_id']}")
    say(f"features    {' '.join(f'{name}={level}' for name, level in summary['features'].items()) or '-'}")
    say(f"topics      {summary['topics']:,} and {summary['internal_topics']:,} internal")
    say(f"partitions  {summary['partitions']:,}: {len(offline):,} offline, {len(behind):,} under-replicated")
    columns = ("broker", "address", "rack", "controller", "leads", "replicas", "answers")
    rows = [
        (
            one["node_id"],
            f"{one['host']}:{one['port']}",
            one["rack"],
            "yes" if one["is_controller"] else "no",
            one["leads"],
            one["replicas"],
            "yes" if one["answers"] else "no",
        )
        for one in summary["brokers"]
    ]
    print_table(columns, rows)
    for one in summary["brokers"]:
        if one["problem"]:
            say(f"broker {one['node_id']}: {one['problem']}")
    for what, names in (("offline", offline), ("under-replicated", behind)):
        if names:
            more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
            say(f"{what}: {', '.join(names[:MAX_NAMED])}{more}")
