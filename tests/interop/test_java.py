"""Apache Kafka's own Java clients, through the tools that ship with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.batches import CODECS
from tests.support.confluent import create_topic, make_producer, read, send
from tests.support.kafka import run_tool
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK

Topics = Callable[[], str]

TOOLS = "org.apache.kafka.tools"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"


@pytest.fixture(autouse=True)
def jars() -> Path:
    parts.required(parts.java)
    return parts.required(parts.kafka_libs)


def consume(broker: BrokerProcess, topic: str, count: int, offset: str = "earliest") -> list[str]:
    """What the Java consumer prints: timestamp, offset, headers, key and value of each record, tab-separated."""
    printed = [f"print.{each}=true" for each in ("timestamp", "offset", "headers", "key")]
    done = run_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", offset),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
        *(argument for each in printed for argument in ("--formatter-property", each)),
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("codec", CODECS if IS_SOAK else ["zstd"])
def test_producer_performance(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    """The Java producer, idempotent as by default, in every codec; read back with librdkafka."""
    topic, count = new_topic(), 5_000
    create_topic(broker, topic)
    done = run_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
        "--producer-props",
        *(f"bootstrap.servers={broker.bootstrap}", "acks=all", f"compression.type={codec}"),
    )
    assert re.search(rf"^{count} records sent", done.stdout, re.MULTILINE), done.stdout
    messages = read(broker, topic, count)
    assert [message.offset() for message in messages] == list(range(count))
    assert {len(message.value()) for message in messages} == {100}


def test_verifiable_producer(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, count = new_topic(), 1_000
    create_topic(broker, topic)
    done = run_tool(
        f"{TOOLS}.VerifiableProducer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", str(count), "--acks", "-1"),
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    acknowledged = [each for each in events if each["name"] == "producer_send_success"]
    assert [each["offset"] for each in acknowledged] == list(range(count))
    assert [message.value().decode() for message in read(broker, topic, count)] == [str(n) for n in range(count)]


@pytest.mark.parametrize("codec", CODECS if IS_SOAK else ["zstd"])
def test_the_java_consumer_reads_what_others_wrote(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(broker, compression_type=codec, linger_ms=50)
    sent = [
        {"key": f"k{n}", "value": f"value {n} " * 10, "headers": [("h", b"%d" % n)], "timestamp": 1_000_000 + n}
        for n in range(50)
    ]
    send(producer, topic, sent)
    assert consume(broker, topic, 20, offset="30") == [
        f"CreateTime:{1_000_000 + n}\tOffset:{n}\th:{n}\tk{n}\tvalue {n} " + f"value {n} " * 9 for n in range(30, 50)
    ]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"] if IS_SOAK else ["lz4"])
def test_the_java_consumer_reads_what_the_broker_compressed(
    broker: BrokerProcess, new_topic: Topics, codec: str
) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"compression.type": codec})
    values = [f"{n} " * 2_000 for n in range(40)]
    send(make_producer(broker, linger_ms=50), topic, ({"value": value} for value in values))
    assert [line.split("\t")[-1] for line in consume(broker, topic, len(values))] == values


def test_topic_command(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()

    def topics(*arguments: str) -> str:
        return run_tool(f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.bootstrap, *arguments).stdout

    config = ("--config", "retention.ms=100000", "--config", "cleanup.policy=compact")
    assert "Created topic" in topics("--create", "--topic", topic, "--partitions", "3", *config)
    assert topic in topics("--list").split()
    topics("--alter", "--topic", topic, "--partitions", "5")
    described = topics("--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert "retention.ms=100000" in described
    assert "cleanup.policy=compact" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 5
    topics("--delete", "--topic", topic)
    assert topic not in topics("--list").split()


def test_config_command(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)

    def configs(*arguments: str) -> str:
        common = ("--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", topic)
        return run_tool("kafka.admin.ConfigCommand", *common, *arguments).stdout

    configs("--alter", "--add-config", "retention.ms=4321,max.message.bytes=2000")
    assert re.search(r"retention\.ms=4321\b.*\bDYNAMIC_TOPIC_CONFIG", configs("--describe"))
    configs("--alter", "--delete-config", "retention.ms")
    described = configs("--describe", "--all")
    assert "retention.ms=4321" not in described
    assert "max.message.bytes=2000" in described
    assert re.search(r"segment\.bytes=1073741824\b.*\bDEFAULT_CONFIG:log\.segment\.bytes", described)


def test_get_offset_shell(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, partitions=2)
    times = [1_000_000, 3_000_000, 2_000_000]
    for each in times:
        send(make_producer(broker), topic, [{"value": b"v", "partition": 1, "timestamp": each}])

    def offsets(time: str) -> list[str]:
        tool = f"{TOOLS}.GetOffsetShell"
        done = run_tool(tool, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", time)
        return done.stdout.split()

    assert offsets("latest") == [f"{topic}:0:0", f"{topic}:1:3"]
    assert offsets("max-timestamp") == [f"{topic}:1:1"]
    assert offsets("1500000") == [f"{topic}:1:1"]


def test_the_cluster_as_java_sees_it(broker: BrokerProcess, new_topic: Topics, tmp_path: Path) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    send(make_producer(broker, enable_idempotence=True), topic, ({"value": b"v"} for _ in range(4)))
    server = ("--bootstrap-server", broker.bootstrap)

    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    deleted = run_tool(f"{TOOLS}.DeleteRecordsCommand", *server, "--offset-json-file", str(tmp_path / "delete.json"))
    assert "low_watermark: 3" in deleted.stdout

    directories = run_tool(f"{TOOLS}.LogDirsCommand", *server, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in directories.stdout

    producers = ("describe-producers", "--topic", topic, "--partition", "0")
    described = run_tool(f"{TOOLS}.TransactionsCommand", *server, *producers)
    assert len(described.stdout.strip().splitlines()) == 2

    versions = run_tool(f"{TOOLS}.BrokerApiVersionsCommand", *server)
    assert "Produce(0): 0 to 13" in versions.stdout
    assert run_tool(f"{TOOLS}.ClusterTool", "cluster-id", *server).stdout.startswith("Cluster ID: ")
