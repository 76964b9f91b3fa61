"""Every version of every API that both brokers serve: the same request, the same answer in that version's schema."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.support.batches import make_batch, read_records
from tests.support.compare import assert_equal, masked
from tests.support.process import BrokerProcess
from tests.support.raw import API_KEYS, Message, RawClient, encode_header
from tests.support.requests import EARLIEST, LATEST, create_topic, fetch, produce

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

UNSUPPORTED_VERSION = 35

# What oncelog serves; it advertises exactly these, and Apache Kafka these and more.
SERVED = {
    "produce": (3, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "txn_offset_commit": (0, 5),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "describe_log_dirs": (1, 5),
    "create_partitions": (0, 3),
    "delete_groups": (0, 2),
    "incremental_alter_configs": (0, 1),
    "offset_delete": (0, 0),
    "describe_client_quotas": (0, 1),
    "alter_client_quotas": (0, 1),
    "describe_cluster": (0, 2),
    "describe_producers": (0, 0),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
    "list_config_resources": (0, 1),
    "describe_topic_partitions": (0, 0),
}
# Produce's lowest version reads 0 in ApiVersions: librdkafka turns compression off otherwise.
ADVERTISED_FROM_ZERO = {"produce"}

Ask = Callable[[str, uuid.UUID], Message]

ASKS: dict[str, Ask] = {
    "list_offsets": lambda topic, _: {
        "replica_id": -1,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST},
                    {"partition_index": 1, "current_leader_epoch": -1, "timestamp": EARLIEST},
                    {"partition_index": 7, "current_leader_epoch": -1, "timestamp": LATEST},
                ],
            },
            {
                "name": f"{topic}-unknown",
                "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}],
            },
        ],
    },
    "metadata": lambda topic, _: {"topics": [{"name": topic}], "allow_auto_topic_creation": False},
    "create_topics": lambda topic, _: {
        "topics": [
            {"name": topic, "num_partitions": 1, "replication_factor": 1},
            {"name": "in valid", "num_partitions": 1, "replication_factor": 1},
            {"name": f"{topic}-validated", "num_partitions": 2, "replication_factor": 1},
        ],
        "timeout": 10_000,
        "validate_only": True,
    },
    "delete_topics": lambda topic, _: {
        "topic_names": [f"{topic}-unknown"],
        "topics": [{"name": f"{topic}-unknown"}],
        "timeout": 10_000,
    },
    "delete_records": lambda topic, _: {
        "topics": [
            {"name": topic, "partitions": [{"partition_index": 0, "offset": 1}, {"partition_index": 9, "offset": 1}]},
            {"name": f"{topic}-unknown", "partitions": [{"partition_index": 0, "offset": 1}]},
        ],
        "timeout": 10_000,
    },
    "init_producer_id": lambda *_: {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    },
    "offset_for_leader_epoch": lambda topic, _: {
        "replica_id": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
                    {"partition": 1, "current_leader_epoch": 0, "leader_epoch": 5},
                    {"partition": 9, "current_leader_epoch": -1, "leader_epoch": 0},
                ],
            }
        ],
    },
    "describe_configs": lambda topic, _: {
        "resources": [
            {"resource_type": 2, "resource_name": topic, "configuration_keys": ["segment.bytes", "max.message.bytes"]},
            {"resource_type": 2, "resource_name": f"{topic}-unknown", "configuration_keys": None},
        ],
        "include_synonyms": True,
    },
    "alter_configs": lambda topic, _: {
        "resources": [
            {"resource_type": 2, "resource_name": topic, "configs": [{"name": "segment.ms", "value": "100000"}]},
            {"resource_type": 2, "resource_name": f"{topic}-unknown", "configs": []},
        ]
    },
    "incremental_alter_configs": lambda topic, _: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": topic,
                "configs": [{"name": "segment.ms", "config_operation": 0, "value": "100000"}],
            },
            {"resource_type": 2, "resource_name": f"{topic}-unknown", "configs": []},
        ]
    },
    "describe_log_dirs": lambda topic, _: {"topics": [{"topic": topic, "partitions": [0, 1]}]},
    "create_partitions": lambda topic, _: {
        "topics": [{"name": topic, "count": 1}, {"name": f"{topic}-unknown", "count": 5}],
        "timeout": 10_000,
    },
    "describe_client_quotas": lambda topic, _: {
        "components": [{"entity_type": "client-id", "match_type": 0, "match": topic}],
        "strict": True,
    },
    "alter_client_quotas": lambda topic, _: {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": topic}],
                "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    "describe_cluster": lambda *_: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    "describe_producers": lambda topic, _: {"topics": [{"name": topic, "partition_indexes": [0, 1, 9]}]},
    "describe_topic_partitions": lambda topic, _: {
        "topics": [{"name": topic}, {"name": f"{topic}-unknown"}],
        "response_partition_limit": 10,
    },
}


def versions(api: str) -> range:
    lowest, highest = SERVED[api]
    return range(lowest, highest + 1)


def every(apis: Iterable[str]) -> list[Any]:
    return [pytest.param(api, version, id=f"{api}-v{version}") for api in apis for version in versions(api)]


def make_topics(brokers: Brokers, name: str) -> dict[str, uuid.UUID]:
    """The same two partitions everywhere: three batches of a producer in the first, nothing in the second."""
    ids = {}
    for kind, broker in brokers.items():
        with RawClient(broker.address) as client:
            ids[kind] = create_topic(client, name, partitions=2)
            for sequence in range(3):
                batch = make_batch([b"x"], producer_id=4000, epoch=2, sequence=sequence)
                assert produce(client, name, batch)["error_code"] == 0
    return ids


@pytest.mark.parametrize(("api", "version"), every(ASKS))
def test_the_same_answer(both_brokers: Brokers, new_topic: Topics, api: str, version: int) -> None:
    topic = new_topic()
    ids = make_topics(both_brokers, topic)
    answers = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            answer = client.request(api, version, ASKS[api](topic, ids[kind]))
        # A duration since the broker last saw the producer, hence never equal.
        answers[kind] = masked(answer, frozenset({"last_timestamp"}))
    assert_equal(answers)


@pytest.mark.parametrize("version", versions("produce"))
def test_every_produce_version(both_brokers: Brokers, new_topic: Topics, version: int) -> None:
    topic = new_topic()
    ids = make_topics(both_brokers, topic)
    answers = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            answers[kind] = [
                _acknowledged(produce(client, topic, batch, version=version, topic_id=ids[kind], partition=partition))
                for batch, partition in (
                    (make_batch([b"a", b"b"]), 0),
                    (make_batch([b"a"], producer_id=4000, epoch=2, sequence=2), 0),
                    (make_batch([b"a"], producer_id=4000, epoch=2, sequence=9), 0),
                    (make_batch([b"a"], crc=0), 0),
                    (make_batch([b"a"]), 9),
                    (make_batch([b"a"]), 1),
                )
            ]
        assert [each["error_code"] for each in answers[kind]] == [0, 0, 45, 2, 3, 0]
        assert [each["base_offset"] for each in answers[kind]] == [3, 2, -1, -1, -1, 0]
    assert_equal(answers)


def _acknowledged(answer: Message) -> Message:
    """Where the log starts is part of a success; on errors Kafka tells it or not, and no client looks."""
    return masked(answer, frozenset({"log_start_offset"} if answer["error_code"] else ()))


@pytest.mark.parametrize("version", versions("fetch"))
def test_every_fetch_version(both_brokers: Brokers, new_topic: Topics, version: int) -> None:
    topic = new_topic()
    ids = make_topics(both_brokers, topic)
    answers = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            answers[kind] = [
                _readable(fetch(client, topic, offset, version=version, topic_id=ids[kind], partition=p, max_wait=50))
                for offset, p in ((0, 0), (2, 0), (3, 0), (4, 0), (-1, 0), (0, 1), (0, 9))
            ]
        assert [each["error_code"] for each in answers[kind]] == [0, 0, 0, 1, 1, 0, 3]
        assert [offset for offset, _ in answers[kind][0]["records"]] == [0, 1, 2]
    assert_equal(answers)


def _readable(answer: Message) -> Message:
    """Lists that are null or empty, as the broker likes: clients treat both the same."""
    records = [(record.offset, record.value) for record in read_records(answer["records"] or b"")]
    return {**masked(answer), "records": records, "aborted_transactions": answer["aborted_transactions"] or []}


@pytest.mark.parametrize("version", versions("api_versions"))
def test_what_is_advertised(broker: BrokerProcess, version: int) -> None:
    with RawClient(broker.address) as client:
        software = {"client_software_name": "test", "client_software_version": "1"}
        answer = client.request("api_versions", version, software)
    assert answer["error_code"] == 0
    advertised = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    expected = {API_KEYS[api]: (0 if api in ADVERTISED_FROM_ZERO else low, high) for api, (low, high) in SERVED.items()}
    if broker.kind == "oncelog":
        assert advertised == expected
    else:
        assert expected.items() <= advertised.items()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_api_versions_request_from_the_future(broker: BrokerProcess, version: int) -> None:
    """Answered in the oldest schema, with the range that the client may use instead."""
    head = encode_header(API_KEYS["api_versions"], version, 77, "newer", flexible=True)
    payload = head + b"\x02a\x02b\x00"
    with RawClient(broker.address) as client:
        client.send_bytes(struct.pack(">i", len(payload)) + payload)
        frame = client.receive_frame()
        correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
        assert (correlation_id, error_code, count) == (77, UNSUPPORTED_VERSION, 1)
        assert struct.unpack_from(">hhh", frame, 10) == (API_KEYS["api_versions"], 0, 4)
        assert len(frame) == 16
        assert client.request("api_versions", 3, {"client_software_name": "a", "client_software_version": "1"})


@pytest.mark.parametrize("name", ["", "no spaces allowed", "-x"])
def test_an_api_versions_request_with_a_bad_client_name(both_brokers: Brokers, name: str) -> None:
    answers = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            software = {"client_software_name": name, "client_software_version": "1"}
            answers[kind] = client.request("api_versions", 3, software)["error_code"]
    assert set(answers.values()) == {42}
