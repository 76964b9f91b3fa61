"""Transactions one after the other: what a broker costs (same client on both), and what a client costs (both clients on
each)."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Comparison, Entry, Results, figures, hold
from bench.figures import KINDS, OURS, Bounds, Figure, Progress, at_least
from bench.peers import both_running
from bench.scale import Scale
from bench.transactors import Job

TOPIC, PEER = "transactions", "confluent-kafka"
CLIENTS = ("confluent", "oncelog")
THOUSAND = 1_000
ONE_RECORD, MANY_RECORDS = at_least(1.5, 3.0), at_least(1.0, 1.5)

COMPARED = [
    Comparison("producer, transactions of one record", "transactions/s", "confluent 1", "oncelog 1", PEER, ONE_RECORD),
    Comparison(
        "producer, transactions of 1,000 records",
        "records/s",
        *("confluent 1000", "oncelog 1000", PEER, MANY_RECORDS, "records"),
    ),
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    entries = [
        Entry(f"{client} {size}", client, Job("", TOPIC, count, size))
        for client in CLIENTS
        for size, count in ((1, scale.transactions), (THOUSAND, scale.transactions // 5))
    ]
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, 1)
            for client in CLIENTS:  # until the broker's code is compiled
                Job(broker.bootstrap, TOPIC, 2 * scale.transactions, 1).measured(client)
        results = hold(scale.rounds, brokers, entries, progress)
    return [
        *_of_brokers(results, "confluent-kafka", "confluent"),
        *_of_brokers(results, "oncelog's producer", "oncelog"),
        *figures(results, COMPARED),
    ]


def _of_brokers(results: Results, client: str, entry: str) -> list[Figure]:
    def figure(what: str, unit: str, size: int, value: str, bounds: Bounds) -> Figure:
        samples = {kind: [one[value] for one in results[kind, f"{entry} {size}"]] for kind in KINDS}
        return Figure(what, unit, samples, bounds if entry != OURS else None, client)

    return [
        figure("transactions of one record", "transactions/s", 1, "rate", ONE_RECORD),
        figure("transactions of 1,000 records", "records/s", THOUSAND, "records", MANY_RECORDS),
    ]
