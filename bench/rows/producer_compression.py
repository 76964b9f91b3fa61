"""`send()` of JSON-like records with zstd and lz4, at each client's default level, against confluent-kafka."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Comparison, Entry, figures, hold
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.producers import Job
from bench.scale import Scale

TOPIC, PARTITIONS, PEER = "json", 4, "confluent-kafka"
CODECS = ("zstd", "lz4")
CLIENTS = ("confluent", "oncelog")


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    entries = [
        Entry(f"{client} {codec}", f"{client} callbacks", Job("", TOPIC, scale.small_records, "json", codec=codec))
        for codec in CODECS
        for client in CLIENTS
    ]
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            Job(broker.bootstrap, TOPIC, scale.small_records // 5, "json").measured("confluent callbacks")
        results = hold(scale.rounds, brokers, entries, progress)
    compared = [
        Comparison(
            f"send() with a callback, JSON, {codec}",
            "records/s",
            theirs=f"confluent {codec}",
            ours=f"oncelog {codec}",
            peer=PEER,
            bounds=at_least(1.2, 2.0),
        )
        for codec in CODECS
    ]
    return figures(results, compared)
