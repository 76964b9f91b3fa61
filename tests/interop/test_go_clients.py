"""franz-go, a client from another family again, at the newest versions of the protocol; its records are read back by
librdkafka, and everything that it is told must be what Apache Kafka tells it (`--brokers=kafka` runs it there)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import go
from tests.support.batches import CODECS
from tests.support.confluent import read
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

SOURCES = Path(__file__).with_name("go")
TIMEOUT_S = 120
COUNT = 200
PARTITIONS = 2
END = COUNT // PARTITIONS


def run_session(broker: BrokerProcess, topic: str, codec: str, first_ms: int) -> dict[str, Any]:
    command = [str(go.program(SOURCES)), broker.bootstrap, topic, codec, str(COUNT), str(first_ms)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def sent(numbers: range, first_ms: int) -> list[list[Any]]:
    """As the session reports a record: partition, offset, timestamp, leader epoch, key, value, header."""
    return [[n % 2, n // 2, first_ms + n, 0, f"k{n}", f"value {n}", f"{n}"] for n in numbers]


def in_order(records: list[list[Any]]) -> list[list[Any]]:
    """The partitions mixed as they were sent; within a partition the order is left alone, as it must be right."""
    queues = [iter([each for each in records if each[0] == index]) for index in range(PARTITIONS)]
    return [each for pair in zip(*queues, strict=True) for each in pair]


@pytest.mark.parametrize("codec", CODECS)
def test_franz_go(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    first_ms = int(time.time() * 1_000) - COUNT  # of now: producer ids whose records are old are soon forgotten
    seen = run_session(broker, topic, codec, first_ms)

    assert seen["created"] == [PARTITIONS, 1, "TOPIC_ALREADY_EXISTS"]
    assert seen["produced"] == {"0": END - 1, "1": END - 1}
    assert {place: in_order(records) for place, records in seen["read"].items()} == {
        **{place: sent(range(COUNT), first_ms) for place in ("start", "beyond", "committed", "trickle", "alone")},
        "end": sent(range(COUNT - 6, COUNT), first_ms),
        "time": sent(range(10, COUNT), first_ms),
        "offset": sent(range(COUNT - 8, COUNT), first_ms),
    }
    assert seen["offsets"] == {
        **{place: {"0": [0, -1], "1": [0, -1]} for place in ("start", "local")},
        **{place: {"0": [END, -1], "1": [END, -1]} for place in ("end", "stable")},
        "after": {"0": [5, first_ms + 10], "1": [5, first_ms + 11]},
        "newest": {"0": [END - 1, first_ms + COUNT - 2], "1": [END - 1, first_ms + COUNT - 1]},
    }
    assert seen["configs"] == [{"segment.bytes": "1048576"}, "INVALID_CONFIG"]
    assert seen["metadata by id"] == ["", PARTITIONS]
    assert seen["metadata by unknown id"] == ["UNKNOWN_TOPIC_ID", 0]
    assert seen["producers"] == {"0": END - 1, "1": END - 1}
    assert seen["log dirs"] == {"0": True, "1": True}
    assert seen["partitions"] == PARTITIONS + 1
    assert seen["deleted records"] == {"0": [5, ""], "1": [-1, "OFFSET_OUT_OF_RANGE"]}

    messages = read(broker, topic, END, partition=1)
    assert [(message.key(), message.value(), message.headers()) for message in messages] == [
        (b"k%d" % n, b"value %d" % n, [("n", b"%d" % n)]) for n in range(1, COUNT, 2)
    ]
