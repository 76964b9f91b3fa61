"""Groups of Apache Kafka's own consumer, in both protocols, and its tool that administers groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.support import parts
from tests.support.confluent import create_topic, make_consumer, make_producer, poll, send
from tests.support.kafka import run_tool
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 3
COUNT = 30


@pytest.fixture(autouse=True)
def jars() -> Path:
    parts.required(parts.java)
    return parts.required(parts.kafka_libs)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Topics) -> str:
    name = new_topic()
    create_topic(broker, name, partitions=PARTITIONS)
    write(broker, name)
    return name


def write(broker: BrokerProcess, topic: str, count: int = COUNT) -> None:
    send(make_producer(broker), topic, ({"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(count)))


def events(broker: BrokerProcess, topic: str, count: int, protocol: str) -> list[dict[str, Any]]:
    done = run_tool(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", f"group-of-{topic}"),
        *("--max-messages", str(count), "--reset-policy", "earliest", "--group-protocol", protocol),
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer(broker: BrokerProcess, topic: str, protocol: str) -> None:
    """It is assigned everything, reads from the beginning, commits; its successor goes on from there."""
    seen = events(broker, topic, COUNT, protocol)
    # In the new protocol it first tells of none if the assignment comes before the metadata that names its topics.
    assigned = [each for each in seen if each["name"] == "partitions_assigned" and each["partitions"]]
    assert len(assigned[0]["partitions"]) == PARTITIONS
    assert sum(each["count"] for each in seen if each["name"] == "records_consumed") == COUNT
    commits = [each for each in seen if each["name"] == "offsets_committed"]
    assert all(each["success"] for each in commits)
    write(broker, topic, 3)
    ranges = [each for each in events(broker, topic, 3, protocol) if each["name"] == "records_consumed"]
    first = {each["partition"]: each["minOffset"] for one in ranges for each in one["partitions"]}
    assert first == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)


def administer(broker: BrokerProcess, *arguments: str) -> list[list[str]]:
    """What the tool prints, line by line, in words."""
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    done = run_tool(command, "--bootstrap-server", broker.bootstrap, *arguments)
    return [line.split() for line in done.stdout.splitlines() if line.strip()]


def row_of(rows: list[list[str]], group: str) -> list[str]:
    (row,) = [row for row in rows if group in row]
    return row


def offsets(broker: BrokerProcess, group: str) -> dict[str, tuple[str, ...]]:
    """Of each partition: what is committed, where the log ends, how far behind that is."""
    rows = administer(broker, "--describe", "--group", group)
    return {row[2]: tuple(row[3:6]) for row in rows if row[0] == group}


def join(broker: BrokerProcess, topic: str, protocol: str) -> Consumer:
    member = make_consumer(broker, group_id=f"group-of-{topic}", auto_offset_reset="earliest", group_protocol=protocol)
    member.subscribe([topic])
    poll(member, COUNT)
    member.commit(asynchronous=False)
    return member


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_tool_describes_a_group(broker: BrokerProcess, topic: str, protocol: str) -> None:
    group = f"group-of-{topic}"
    member = join(broker, topic, protocol)
    write(broker, topic, 3)
    assert offsets(broker, group) == dict.fromkeys("012", ("10", "11", "1"))
    assert str(PARTITIONS) in row_of(administer(broker, "--describe", "--members", "--group", group), group)
    assert "Stable" in row_of(administer(broker, "--list", "--state", "stable"), group)
    member.close()


def test_the_tool_changes_a_group(broker: BrokerProcess, topic: str) -> None:
    group = f"group-of-{topic}"
    join(broker, topic, "classic").close()
    reset = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-offset", "4", "--execute")
    assert row_of(administer(broker, *reset), group)[:4] == [group, topic, "0", "4"]
    deleted = administer(broker, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert "Successful" in row_of(deleted, topic), deleted
    assert {index: at for index, (at, *_) in offsets(broker, group).items() if at != "-"} == {"0": "4", "2": "10"}
    administer(broker, "--delete", "--group", group)
    assert not [row for row in administer(broker, "--list") if group in row]
