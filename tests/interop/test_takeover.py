"""oncelog goes on with the data folder of a single-node Apache Kafka: nothing is lost, changed, or given out twice."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.support import parts
from tests.support.batches import make_batch, read_batches
from tests.support.broker import OncelogBroker
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin, make_consumer, make_producer, send
from tests.support.kafka import KafkaBroker, run_tool
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient, encode_request
from tests.support.requests import EARLIEST, LATEST, fetch, list_offset, produce, produce_request
from tests.support.sizes import IS_SOAK
from tests.support.transactions import HandProducer, committed

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {*(f"codec-{codec}" for codec in CODECS), "compacted", "stamped", "empty", "transactions", "by-hand"}
TOPIC, BROKER, ALL_BROKERS = 2, 4, ""
TOPIC_CONFIG, CLUSTER_CONFIG = 1, 3
"""Sources of a setting, as DescribeConfigs numbers them."""
SETTINGS = {"log.retention.ms": "-1", "auto.create.topics.enable": "false"}
FIRST_TIMESTAMP_MS = 1_700_000_000_000
LONG_MS = 900_000


@pytest.fixture(autouse=True)
def jars() -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)


class Sender(NamedTuple):
    """An idempotent producer by hand, and the last batch that Kafka acknowledged to it."""

    producer_id: int
    batch: bytes
    base_offset: int


def fill(kafka: BrokerProcess) -> Sender:
    """Everything that a folder may hold: codecs, headers, tombstones, transactions, groups, changed and deleted
    topics, settings of topics and of the cluster."""
    for codec in CODECS:
        create_topic(kafka, f"codec-{codec}", partitions=2, configs={"retention.ms": "-1", "segment.ms": "600000"})
        producer = make_producer(kafka, compression_type=codec, enable_idempotence=True, linger_ms=20)
        send(producer, f"codec-{codec}", messages(200))
    create_topic(kafka, "compacted", configs={"cleanup.policy": "compact", "min.insync.replicas": "1"})
    send(make_producer(kafka), "compacted", [{"key": b"k", "value": value} for value in (b"1", b"2", None)])
    create_topic(kafka, "stamped", configs={"message.timestamp.type": "LogAppendTime"})
    send(make_producer(kafka), "stamped", messages(10))
    create_topic(kafka, "empty", partitions=3)
    create_topic(kafka, "deleted")
    admin = make_admin(kafka)
    admin.delete_topics(["deleted"])["deleted"].result()
    reconfigure(kafka)
    run_transactions(kafka)
    commit_offsets(kafka)
    return send_by_hand(kafka)


def messages(count: int) -> list[dict[str, Any]]:
    return [
        {
            "key": f"key {number % 7}",
            "value": f"value {number} " * 5,
            "headers": [("number", b"%d" % number), ("null", None)],
            "timestamp": FIRST_TIMESTAMP_MS + number,
            "partition": 0,
        }
        for number in range(count)
    ]


def reconfigure(kafka: BrokerProcess) -> None:
    with RawClient(kafka.address) as client:
        alter_config(client, TOPIC, "codec-none", "max.message.bytes", "2000000")
        alter_config(client, TOPIC, "codec-none", "segment.ms", None)
        alter_config(client, BROKER, ALL_BROKERS, "log.cleaner.delete.retention.ms", "1234567")


def alter_config(client: RawClient, resource_type: int, resource: str, name: str, value: str | None) -> None:
    change = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resources = [{"resource_type": resource_type, "resource_name": resource, "configs": [change]}]
    (answer,) = client.request("incremental_alter_configs", 1, {"resources": resources})["responses"]
    assert answer["error_code"] == 0, answer


def run_transactions(kafka: BrokerProcess) -> None:
    create_topic(kafka, "transactions")
    producer = make_producer(kafka, transactional_id="taken-over")
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        producer.produce("transactions", value=b"committed" if commits else b"aborted")
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def begin_transaction(kafka: BrokerProcess) -> HandProducer:
    with RawClient(kafka.address) as client:
        producer = HandProducer(client, "left-open")
        eventually(lambda: producer.init(timeout_ms=LONG_MS) == "none", "the coordinator serves")
        assert producer.produce("transactions", b"left open") == "none"
    return producer


def commit_offsets(kafka: BrokerProcess) -> None:
    consumer = make_consumer(kafka, group_id="readers")
    consumer.commit(offsets=[TopicPartition("codec-none", 0, 7)], asynchronous=False)
    consumer.close()


def send_by_hand(kafka: BrokerProcess) -> Sender:
    create_topic(kafka, "by-hand")
    with RawClient(kafka.address) as client:
        producer_id = new_producer_id(client)
        for sequence in (0, 2):
            # As of now: a producer that has been silent for a day by its records' time is forgotten at a restart.
            now_ms = int(time.time() * 1000)
            batch = make_batch([b"a", b"b"], producer_id=producer_id, epoch=0, sequence=sequence, base_timestamp=now_ms)
            stored = produce(client, "by-hand", batch)
            assert stored["error_code"] == 0
    return Sender(producer_id, batch, stored["base_offset"])


def new_producer_id(client: RawClient) -> int:
    fresh = {"transactional_id": None, "transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1}
    answer = client.request("init_producer_id", 4, fresh)
    assert answer["error_code"] == 0
    return int(answer["producer_id"])


Read = list[tuple[Any, ...]]


class PartitionContents(NamedTuple):
    start_offset: int
    end_offset: int
    stored: bytes
    """The batches, byte for byte."""
    read: Read
    """What a client sees of them that reads committed records."""


class TopicContents(NamedTuple):
    topic_id: object
    configs: dict[str, str]
    partitions: list[PartitionContents]


def survey(broker: BrokerProcess) -> dict[str, TopicContents]:
    """Everything that clients can learn about the topics."""
    with RawClient(broker.address) as client:
        found = [topic for topic in list_topics(client) if not topic["is_internal"]]
        sizes = {topic["name"]: len(topic["partitions"]) for topic in found}
        read = read_to_the_end(broker, {(name, index) for name, size in sizes.items() for index in range(size)})
        return {
            topic["name"]: TopicContents(
                topic["topic_id"],
                settings(client, TOPIC, topic["name"], TOPIC_CONFIG),
                [contents(client, topic["name"], index, read) for index in range(len(topic["partitions"]))],
            )
            for topic in found
        }


def list_topics(client: RawClient) -> list[Message]:
    answer = client.request("metadata", 12, {"topics": None, "allow_auto_topic_creation": False})
    return list(answer["topics"])


def settings(client: RawClient, resource_type: int, name: str, source: int) -> dict[str, str]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    (answer,) = client.request("describe_configs", 4, {"resources": [resource]})["results"]
    assert answer["error_code"] == 0
    return {each["name"]: each["value"] for each in answer["configs"] if each["config_source"] == source}


def contents(client: RawClient, topic: str, partition: int, read: dict[tuple[str, int], Read]) -> PartitionContents:
    start = list_offset(client, topic, EARLIEST, partition=partition)["offset"]
    end = list_offset(client, topic, LATEST, partition=partition)["offset"]
    stored = fetch(client, topic, start, partition=partition, max_wait=0, min_bytes=0)["records"] or b""
    assert sum(batch.last_offset_delta + 1 for batch in read_batches(stored)) == end - start
    return PartitionContents(start, end, stored, read[topic, partition])


def read_to_the_end(broker: BrokerProcess, partitions: set[tuple[str, int]]) -> dict[tuple[str, int], Read]:
    found: dict[tuple[str, int], Read] = {partition: [] for partition in partitions}
    unread = set(partitions)
    consumer = make_consumer(broker, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in partitions])
    try:
        while unread:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{unread} do not end"
            partition = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is None:
                seen = (message.offset(), message.timestamp(), message.key(), message.value(), message.headers() or [])
                found[partition].append(seen)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                unread.discard(partition)
        return found
    finally:
        consumer.close()


def leader_epochs(broker: BrokerProcess) -> dict[tuple[str, int], int]:
    with RawClient(broker.address) as client:
        topics = list_topics(client)
    return {
        (topic["name"], partition["partition_index"]): partition["leader_epoch"]
        for topic in topics
        for partition in topic["partitions"]
    }


def successor(kafka: BrokerProcess) -> OncelogBroker:
    """oncelog on Kafka's folder and at its address."""
    broker = OncelogBroker(kafka.directory, SETTINGS)
    broker.port = kafka.port
    return broker


@pytest.mark.parametrize(
    ("end", "snapshots"), [(KafkaBroker.kill, True), *([(KafkaBroker.stop, False)] if IS_SOAK else [])]
)
def test_a_folder_of_kafka_is_served(tmp_path: Path, end: Callable[[KafkaBroker], int], snapshots: bool) -> None:
    often = {"metadata.log.max.snapshot.interval.ms": "1000"} if snapshots else {}
    with KafkaBroker(tmp_path, {**SETTINGS, **often}) as kafka:
        assert isinstance(kafka, KafkaBroker)
        sender = fill(kafka)
        patient = make_producer(kafka, enable_idempotence=True)
        send(patient, "codec-none", [{"value": b"before", "partition": 1}] * 3)
        transacting = begin_transaction(kafka)
        before, epochs = survey(kafka), leader_epochs(kafka)
        end(kafka)
    assert bool(list((kafka.data_dir / "__cluster_metadata-0").glob("*.checkpoint"))) == snapshots
    assert set(before) == TOPICS
    with successor(kafka) as broker:
        assert survey(broker) == before
        no_epoch_goes_back(broker, epochs, is_led_anew=end is KafkaBroker.stop)
        with RawClient(broker.address) as client:
            assert settings(client, BROKER, ALL_BROKERS, CLUSTER_CONFIG) == {
                "log.cleaner.delete.retention.ms": "1234567"
            }
            nothing_is_given_out_twice(client, sender, before)
        a_producer_goes_on(patient, before)
        a_group_goes_on(broker, committed=7, commits=9)
        a_transaction_goes_on(broker, transacting)
        create_topic(broker, "created-later", partitions=2)
        later = survey(broker)
        broker.kill()
        broker.start()
        assert survey(broker) == later
        broker.stop()
        the_metadata_is_still_kafkas(kafka.data_dir)
    with kafka:
        assert survey(kafka) == later, "Kafka goes on with what oncelog wrote"
        a_group_goes_on(kafka, committed=9, commits=11)
        a_transaction_goes_on(kafka, transacting)


def no_epoch_goes_back(broker: BrokerProcess, epochs: dict[tuple[str, int], int], *, is_led_anew: bool) -> None:
    """Kafka resigns when it is stopped and leads again when it is started: two epochs later."""
    now = leader_epochs(broker)
    assert now == {partition: epoch + 2 * is_led_anew for partition, epoch in epochs.items()}
    with RawClient(broker.address) as client:
        asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epochs["codec-none", 0]}
        topics = [{"topic": "codec-none", "partitions": [asked]}]
        answer = client.request("offset_for_leader_epoch", 4, {"replica_id": -1, "topics": topics})
        (known,) = answer["topics"][0]["partitions"]
        assert (known["leader_epoch"], known["end_offset"]) == (epochs["codec-none", 0], 200)


def nothing_is_given_out_twice(client: RawClient, sender: Sender, before: dict[str, TopicContents]) -> None:
    """Neither producer ids nor offsets: a retry across the takeover is recognised, the next batch follows it."""
    repeated = produce(client, "by-hand", sender.batch)
    assert (repeated["error_code"], repeated["base_offset"]) == (0, sender.base_offset)
    end_offset = before["by-hand"].partitions[0].end_offset
    assert list_offset(client, "by-hand", LATEST)["offset"] == end_offset
    following = make_batch([b"c"], producer_id=sender.producer_id, epoch=0, sequence=4)
    assert produce(client, "by-hand", following)["base_offset"] == end_offset
    used = {
        batch.producer_id
        for topic in before.values()
        for partition in topic.partitions
        for batch in read_batches(partition.stored)
    }
    assert new_producer_id(client) > max(used | {sender.producer_id})


def a_group_goes_on(broker: BrokerProcess, *, committed: int, commits: int) -> None:
    """What was committed with one broker is known to the other."""
    consumer = make_consumer(broker, group_id="readers")
    (known,) = consumer.committed([TopicPartition("codec-none", 0)], TIMEOUT_S)
    assert known.offset == committed
    consumer.commit(offsets=[TopicPartition("codec-none", 0, commits)], asynchronous=False)
    consumer.close()


def a_transaction_goes_on(broker: BrokerProcess, producer: HandProducer) -> None:
    """What is open with one broker is committed with the other, which leaves the next one open."""
    with RawClient(broker.address) as client:
        known = committed(client, "transactions")
        producer.client = client
        eventually(lambda: producer.end(commit=True) == "none", "the coordinator serves")
        assert producer.rest() == "CompleteCommit"
        assert committed(client, "transactions") == [*known, b"left open"]
        assert producer.produce("transactions", b"left open") == "none"


def a_producer_goes_on(producer: Producer, before: dict[str, TopicContents]) -> None:
    """One that was connected to Kafka finds oncelog at the same address."""
    stored = send(producer, "codec-none", [{"value": b"after", "partition": 1}] * 3)
    end_offset = before["codec-none"].partitions[1].end_offset
    assert [message.offset() for message in stored] == list(range(end_offset, end_offset + 3))


def the_metadata_is_still_kafkas(data_dir: Path) -> None:
    """DumpLogSegments decodes every record, and the epochs of the batches never go back."""
    files = sorted((data_dir / "__cluster_metadata-0").glob("*.log"))
    done = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--cluster-metadata-decoder", "--files", ",".join(map(str, files))),
    )
    shown = done.stdout + done.stderr
    assert '"name":"created-later"' in shown
    for complaint in ("isvalid: false", "Error", "Could not", "Exception", "mismatch"):
        assert complaint not in shown
    epochs = [int(epoch) for epoch in re.findall(r"partitionLeaderEpoch: (\d+)", shown)]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


ACL = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*")
ALLOWED = (AclOperation.READ, AclPermissionType.ALLOW)
BEING_WRITTEN = shutil.ignore_patterns("*.tmp")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_rules_of_access_are_not_dropped(tmp_path: Path) -> None:
    """A folder is copied while Kafka runs, which is what a kill would leave, each time with other rules in it."""
    with KafkaBroker(tmp_path / "kafka", AUTHORIZER) as kafka:
        limit_clients(kafka)
        admin = make_admin(kafka)
        (created,) = admin.create_acls([AclBinding(*ACL, *ALLOWED)]).values()
        created.result()
        with_acls = shutil.copytree(kafka.data_dir, tmp_path / "acls", ignore=BEING_WRITTEN)
        (deleted,) = admin.delete_acls([AclBindingFilter(*ACL, *ALLOWED)]).values()
        deleted.result()
        password = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change_user(admin, UserScramCredentialUpsertion("alice", password, b"secret"))
        with_scram = shutil.copytree(kafka.data_dir, tmp_path / "scram", ignore=BEING_WRITTEN)
        change_user(admin, UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256))
    assert "has 1 ACLs, which this broker would not enforce" in refusal(with_acls)
    assert "SCRAM credentials (of alice)" in refusal(with_scram)
    with successor(kafka) as broker:
        assert "not enforced" not in broker.log
        assert is_limited(broker, "greedy")
        assert not is_limited(broker, "modest")


def limit_clients(kafka: BrokerProcess) -> None:
    entity = [{"entity_type": "client-id", "entity_name": "greedy"}]
    limit = [{"key": "producer_byte_rate", "value": 1e4, "remove": False}]
    with RawClient(kafka.address) as client:
        entries = [{"entity": entity, "ops": limit}]
        (answer,) = client.request("alter_client_quotas", 1, {"entries": entries, "validate_only": False})["entries"]
        assert answer["error_code"] == 0, answer


def is_limited(broker: BrokerProcess, client_id: str) -> bool:
    """Whether a request of eleven seconds' worth makes the client pause."""
    with RawClient(broker.address) as client:
        request = produce_request("no such topic", make_batch([bytes(110_000)]))
        client.send_bytes(encode_request("produce", 9, request, 1, client_id))
        return bool(client.receive("produce", 9, 1)["throttle_time"])


def change_user(admin: AdminClient, change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    (changed,) = admin.alter_user_scram_credentials([change]).values()
    changed.result()


def refusal(data_dir: Path) -> str:
    """What oncelog says when it does not start on this folder."""
    command = [sys.executable, "-m", "oncelog", "broker", "--data", str(data_dir), "--node-id", "1"]
    command += ["--listen", "127.0.0.1:0"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    return done.stderr
