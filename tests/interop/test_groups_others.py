"""Groups of kafkajs, kcat and franz-go: clients of three more families, each with its own way through the protocol."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import go, parts
from tests.support.confluent import create_topic, make_producer, send
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

HERE = Path(__file__).parent
TIMEOUT_S = 120
PARTITIONS = 4
COUNT = 20


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Topics) -> str:
    name = new_topic()
    create_topic(broker, name, partitions=PARTITIONS)
    write(broker, name, range(COUNT))
    return name


def write(broker: BrokerProcess, topic: str, numbers: range) -> None:
    send(make_producer(broker), topic, ({"value": b"%d" % n, "partition": n % PARTITIONS} for n in numbers))


def run(command: list[str], **environment: str) -> str:
    environ = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafkajs(broker: BrokerProcess, topic: str) -> None:
    modules = str(parts.required(parts.kafkajs) / "node_modules")

    def session(count: int) -> dict[str, Any]:
        command = ["node", str(HERE / "kafkajs_group.js"), broker.bootstrap, topic, f"group-of-{topic}", str(count)]
        seen: dict[str, Any] = json.loads(run(command, NODE_PATH=modules).splitlines()[-1])
        return seen

    seen = session(COUNT)
    assert sorted(map(int, seen["values"])) == list(range(COUNT))
    assert (sorted(seen["partitions"]), seen["protocol"]) == ([0, 1, 2, 3], "RoundRobinAssigner")
    assert (seen["state"], seen["listed"]) == ("Empty", True)
    assert {each["partition"]: each["offset"] for each in seen["offsets"]} == dict.fromkeys(range(PARTITIONS), "5")
    write(broker, topic, range(COUNT, COUNT + 4))
    assert sorted(map(int, session(4)["values"])) == list(range(COUNT, COUNT + 4)), "it goes on where it stopped"


def test_kcat(broker: BrokerProcess, topic: str) -> None:
    kcat = str(parts.required(parts.kcat))
    settings = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300")

    def read() -> list[int]:
        command = [kcat, "-b", broker.bootstrap, *settings, "-q", "-e", "-G", f"group-of-{topic}", topic]
        return sorted(map(int, run(command).split()))

    assert read() == list(range(COUNT))
    write(broker, topic, range(COUNT, COUNT + 4))
    assert read() == list(range(COUNT, COUNT + 4)), "it commits when it leaves"


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_franz_go(broker: BrokerProcess, topic: str, protocol: str) -> None:
    program = str(go.program(HERE / "go"))
    command = [program, "group", broker.bootstrap, topic, f"group-of-{topic}", str(COUNT), protocol]
    assert json.loads(run(command)) == {
        "read": COUNT,
        "state": "Stable",
        "members": 1,
        "offsets": {str(index): COUNT // PARTITIONS for index in range(PARTITIONS)},
    }
