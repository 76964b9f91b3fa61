"""kcat: an older librdkafka, from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.support import parts
from tests.support.batches import CODECS
from tests.support.confluent import create_topic
from tests.support.process import BrokerProcess

Topics = Callable[[], str]
Kcat = Callable[..., str]

TIMEOUT_S = 120


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    program = str(parts.required(parts.kcat))

    def run(*arguments: str, text_in: str = "") -> str:
        command = [program, "-b", broker.bootstrap, "-m", "20", *arguments]
        done = subprocess.run(command, input=text_in, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(broker: BrokerProcess, kcat: Kcat, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    lines = [f"line {n} " * 20 for n in range(300)]
    kcat("-P", "-t", topic, "-p", "0", "-z", codec, text_in="\n".join(lines) + "\n")
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").splitlines() == lines


def test_keys_headers_and_offsets(broker: BrokerProcess, kcat: Kcat, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    idempotent = ("-X", "enable.idempotence=true", "-X", "acks=all")
    kcat("-P", "-t", topic, "-K", ":", "-H", "trace=7", *idempotent, text_in="a:1\nb:2\nc:3\n")
    printed = kcat("-C", "-t", topic, "-p", "0", "-o", "1", "-e", "-q", "-J").splitlines()
    read = [json.loads(line) for line in printed]
    assert [(each["offset"], each["key"], each["payload"], each["headers"]) for each in read] == [
        (1, "b", "2", ["trace", "7"]),
        (2, "c", "3", ["trace", "7"]),
    ]
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q") == "3\n"


def test_listing(broker: BrokerProcess, kcat: Kcat, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, partitions=3)
    listed = json.loads(kcat("-L", "-J"))
    assert [each["name"] for each in listed["brokers"]] == [broker.bootstrap]
    (found,) = [each for each in listed["topics"] if each["topic"] == topic]
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2]
    assert {each["leader"] for each in found["partitions"]} == {1}


def test_offsets_for_a_time(broker: BrokerProcess, kcat: Kcat, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    kcat("-P", "-t", topic, text_in="one\ntwo\n")
    assert kcat("-Q", "-t", f"{topic}:0:1").strip().endswith("offset 0")
