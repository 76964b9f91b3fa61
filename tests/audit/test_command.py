"""`oncelog audit` over a real socket, on topics that are whole and on topics that are not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import TopicPartition

from oncelog.audit.ids import ID_HEADER
from tests.support import confluent
from tests.support.process import BrokerProcess


def fill(broker: BrokerProcess, topic: str, ids: Iterable[str], *, partition: int = 0, codec: str = "none") -> None:
    producer = confluent.make_producer(broker, compression_type=codec, linger_ms=50)
    messages = [{"value": b"v", "partition": partition, "headers": [(ID_HEADER, each.encode())]} for each in ids]
    confluent.send(producer, topic, messages)


def audit(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncelog", "audit", "-b", broker.bootstrap, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_whole_topic(broker: BrokerProcess, new_topic: Callable[[], str], codec: str) -> None:
    topic = new_topic()
    confluent.create_topic(broker, topic, partitions=2)
    fill(broker, topic, [f"a/0/{number}" for number in range(500)], partition=0, codec=codec)
    fill(broker, topic, [f"a/1/{number}" for number in range(300)], partition=1, codec=codec)
    done = audit(broker, topic, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["clean"]
    assert [entry["stored"] for entry in report["partitions"]] == [500, 300]


def test_a_damaged_topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    confluent.create_topic(broker, topic)
    fill(broker, topic, ["a/0", "a/1", "a/1", "a/4", "a/3", "b/0"])
    done = audit(broker, topic)
    assert done.returncode == 1
    total = next(line for line in done.stdout.splitlines() if "total" in line)
    assert [int(cell) for cell in total.replace("│", " ").split()[1:]] == [6, 6, 1, 1, 1]
    assert f"{topic}-0: a/1 is stored again at offset 2" in done.stdout
    assert f"{topic}-0: a/2 is missing" in done.stdout


def test_a_topic_without_ids(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    confluent.create_topic(broker, topic)
    confluent.send(confluent.make_producer(broker), topic, [{"value": b"plain"}])
    done = audit(broker, topic)
    assert done.returncode == 1
    assert done.stderr.startswith(f"oncelog: no record of {topic} carries an id: number the records")


def test_no_such_topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    done = audit(broker, topic)
    assert done.returncode == 1
    assert done.stderr.startswith(f"oncelog: topic {topic!r} does not exist")
    assert len(done.stderr.splitlines()) == 1


def test_what_retention_removed_is_not_lost(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    confluent.create_topic(broker, topic)
    fill(broker, topic, [f"a/{number}" for number in range(10)])
    admin = confluent.make_admin(broker)
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(30)
    done = audit(broker, topic, "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["total"]["stored"] == 6


def test_no_broker() -> None:
    command = [sys.executable, "-m", "oncelog", "audit", "-b", "127.0.0.1:1", "orders"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("oncelog: no broker answers (127.0.0.1:1")
