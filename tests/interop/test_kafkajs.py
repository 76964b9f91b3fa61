"""kafkajs, a client from another family that speaks older versions; its records are read back by librdkafka."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.confluent import read
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

SESSION = Path(__file__).with_name("kafkajs_session.js")
TIMEOUT_S = 120
COUNT = 200


@pytest.mark.parametrize("codec", ["None", "GZIP"])
def test_a_session(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    home = parts.required(parts.kafkajs)
    command = ["node", str(SESSION), broker.bootstrap, topic, codec, str(COUNT)]
    environment = {**os.environ, "NODE_PATH": str(home / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])

    assert seen["administered"] == {"created": True, "partitions": 3, "retention": "4321", "listed": True}
    assert {each["errorCode"] for each in seen["produced"]} == {0}
    assert sorted((each["partition"], int(each["baseOffset"])) for each in seen["produced"]) == [
        (partition, start) for partition in (0, 1) for start in range(0, COUNT // 2, 25)
    ]
    assert {each["partition"]: (each["low"], each["high"]) for each in seen["offsets"]} == {
        0: ("0", "100"),
        1: ("0", "100"),
    }
    assert {each["partition"]: each["offset"] for each in seen["atTime"]} == {0: "5", 1: "5"}
    assert [(each["host"], each["port"]) for each in seen["brokers"]] == [broker.address]

    messages = read(broker, topic, 98, partition=0) + read(broker, topic, 100, partition=1)
    numbers = [*range(4, COUNT, 2), *range(1, COUNT, 2)]
    assert [(message.key(), message.value(), message.headers()) for message in messages] == [
        (b"k%d" % n, b"value %d" % n, [("n", b"%d" % n)]) for n in numbers
    ]
