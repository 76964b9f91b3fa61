"""Requests that real clients sent to Apache Kafka: how they were captured, kept, and made ready for another broker.

`python -m tests.hostile.captures` runs sessions of every client against Apache Kafka behind a tap and rewrites
`captures.json`: per client, API and version the shortest and the longest request, and the topics that they speak of.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.support.batches import make_batch
from tests.support.raw import API_KEYS, RawClient
from tests.support.requests import create_topic, produce

CAPTURES = Path(__file__).with_name("captures.json")
LARGEST_FRAME_BYTES = 2_000
FETCH_WAIT_MS = 5
RECORDS_PER_PARTITION = 3


class Capture(NamedTuple):
    """One request without its size prefix."""

    api_key: int
    version: int
    payload: bytes


def topics() -> dict[str, int]:
    """The topics that the requests speak of, and how many partitions each has."""
    return {name: topic["partitions"] for name, topic in json.loads(CAPTURES.read_text())["topics"].items()}


def load(address: tuple[str, int]) -> list[Capture]:
    """Every captured request, with its topics created on the broker at `address` and named by their ids there."""
    stored = json.loads(CAPTURES.read_text())
    new_ids = {}
    with RawClient(address) as client:
        for name, topic in stored["topics"].items():
            new_ids[bytes.fromhex(topic["id"])] = create_topic(client, name, partitions=topic["partitions"]).bytes
            for partition in range(topic["partitions"]):
                produce(client, name, make_batch([b"some value"] * RECORDS_PER_PARTITION), partition=partition)
    return [_capture(_with_ids(bytes.fromhex(text), new_ids)) for text in stored["requests"]]


def _with_ids(payload: bytes, new_ids: dict[bytes, bytes]) -> bytes:
    for old, new in new_ids.items():
        payload = payload.replace(old, new)
    return payload


def _capture(payload: bytes) -> Capture:
    return Capture(*struct.unpack_from(">hh", payload), payload)


# -- capturing --------------------------------------------------------------------------------------------------


def choose(frames: Iterable[bytes]) -> list[bytes]:
    """The shortest and the longest request of each client, API and version."""
    groups: dict[tuple[bytes, int, int], list[bytes]] = defaultdict(list)
    for payload in frames:
        if len(payload) <= LARGEST_FRAME_BYTES:
            capture = _capture(payload)
            groups[(_client_id(payload)[:6], capture.api_key, capture.version)].append(_impatient(capture))
    chosen = [{min(group, key=len), max(group, key=len)} for _, group in sorted(groups.items())]
    return [payload for pair in chosen for payload in sorted(pair)]


def _client_id(payload: bytes) -> bytes:
    (size,) = struct.unpack_from(">h", payload, 8)
    return payload[10 : 10 + max(size, 0)]


def _impatient(capture: Capture) -> bytes:
    """A Fetch that waits only briefly, or a run would mostly wait."""
    if capture.api_key != API_KEYS["fetch"]:
        return capture.payload
    body = 10 + len(_client_id(capture.payload)) + (1 if capture.version >= 12 else 0)
    wait_at = body + (4 if capture.version < 15 else 0)
    payload = bytearray(capture.payload)
    struct.pack_into(">i", payload, wait_at, FETCH_WAIT_MS)
    return bytes(payload)


def sessions(new_topic: Callable[[], str]) -> list[Callable[..., None]]:
    """What to do with each client: the tests of the clients, as they are."""
    from kafka import KafkaAdminClient

    from tests.conformance import test_administration, test_configs, test_produce_fetch, test_topics
    from tests.interop import test_aiokafka, test_confluent, test_java, test_kafka_python, test_kafkajs

    def with_admin(test: Callable[..., None], *needs: str) -> Callable[..., None]:
        def run(broker: object) -> None:
            with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
                test(admin, *([broker] if "broker" in needs else []), new_topic)

        return run

    plain = [
        test_confluent.test_topics_through_the_admin_client,
        test_confluent.test_what_is_read_is_what_was_sent,
        test_administration.test_deleting_records_through_a_client,
        test_administration.test_listing_offsets_through_a_client,
        test_configs.test_configs_through_a_client,
        test_topics.test_describing,
        test_topics.test_a_grown_topic_keeps_its_records,
        test_produce_fetch.test_keys_values_and_headers_of_every_shape,
        test_aiokafka.test_offsets,
        test_aiokafka.test_administration,
        test_kafka_python.test_offsets,
        test_java.test_verifiable_producer,
        test_java.test_topic_command,
        test_java.test_config_command,
        test_java.test_get_offset_shell,
    ]
    return [
        *(lambda broker, test=test: test(broker, new_topic) for test in plain),
        *(
            lambda broker, codec=codec: test_produce_fetch.test_batches_stay_compressed_as_sent(
                broker, new_topic, codec
            )
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ),
        with_admin(test_kafka_python.test_topics),
        with_admin(test_kafka_python.test_configs, "broker"),
        with_admin(test_kafka_python.test_the_cluster_and_its_logs, "broker"),
        lambda broker: test_java.test_the_cluster_as_java_sees_it(broker, new_topic, Path(tempfile.mkdtemp())),
        lambda broker: test_java.test_the_java_consumer_reads_what_others_wrote(broker, new_topic, "none"),
        lambda broker: test_kafka_python.test_produce_and_read(broker, new_topic, None, True),
        lambda broker: test_aiokafka.test_produce_and_read(broker, new_topic, "lz4", True),
        lambda broker: test_kafkajs.test_a_session(broker, new_topic, "GZIP"),
    ]


def capture() -> None:
    from tests.support.kafka import KafkaBroker
    from tests.support.tap import Tap

    names: list[str] = []

    def new_topic() -> str:
        names.append(f"captured-{len(names) + 1}")
        return names[-1]

    tap = Tap()
    tap.start()
    with tempfile.TemporaryDirectory() as directory:
        advertised = f"PLAINTEXT://127.0.0.1:{tap.port}"
        with KafkaBroker(Path(directory) / "kafka", {"advertised.listeners": advertised}) as broker:
            tap.connect(broker.address)
            broker.port, port = tap.port, broker.port
            for session in sessions(new_topic):
                session(broker)
            frames = [payload for payload in tap.frames if _client_id(payload) != b"raw"]
            topics = _topics(("127.0.0.1", port), choose(frames))
    tap.stop()
    requests = [payload.hex() for payload in choose(frames)]
    CAPTURES.write_text(json.dumps({"topics": topics, "requests": requests}, indent=0) + "\n")


def _topics(address: tuple[str, int], requests: list[bytes]) -> dict[str, dict[str, object]]:
    """The topics that still exist and that some request speaks of."""
    with RawClient(address) as client:
        found = client.request("metadata", 12, {"topics": None})["topics"]
    spoken = b"".join(requests)
    return {
        topic["name"]: {"id": topic["topic_id"].hex, "partitions": len(topic["partitions"])}
        for topic in sorted(found, key=lambda each: each["name"])
        if topic["name"].startswith("captured")
        and (topic["name"].encode() in spoken or topic["topic_id"].bytes in spoken)
    }


if __name__ == "__main__":
    capture()
