"""The same records in every shape of every codec, sent to oncelog and to Apache Kafka: who stores what.

oncelog stores what Java and librdkafka read, and nothing else. Apache Kafka stores what Java reads, so that a partition
can hold batches at which librdkafka gives up, loses records or aborts; `ONLY_FOR_SOME` names those.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support import parts
from tests.support.batches import make_batch
from tests.support.frames import FOR_ALL, INVALID, ONLY_FOR_SOME, RECORDS, SECTIONS, VALUES
from tests.support.kafka import run_tool
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic, produce

OK, CORRUPT_MESSAGE, INVALID_RECORD = 0, 2, 87
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LIBRDKAFKA_READS = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "by hand", "enable.partition.eof": True})
consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
while (message := consumer.poll(60)) is not None and message.error() is None:
    print(message.value().decode())
print("end" if message is not None and message.error().name() == "_PARTITION_EOF" else message and message.error())
"""
"""In a process of its own: what it cannot read may end that."""


def stored_by(broker: BrokerProcess, topic: str, names: list[str]) -> dict[str, int]:
    """What the broker answers to each, all into one partition."""
    with RawClient(broker.address) as client:
        create_topic(client, topic)
        return {
            name: produce(client, topic, make_batch(RECORDS, codec=codec, section=data))["error_code"]
            for name, (codec, data) in ((name, SECTIONS[name]) for name in names)
        }


def oncelog_answers(name: str) -> int:
    if name in FOR_ALL:
        return OK
    return INVALID_RECORD if name in INVALID else CORRUPT_MESSAGE


def test_what_is_stored(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    answers = stored_by(broker, new_topic(), list(SECTIONS))
    if broker.kind == "oncelog":
        assert answers == {name: oncelog_answers(name) for name in SECTIONS}
    else:
        stored = [name for name, code in answers.items() if code == OK]
        assert sorted(stored) == sorted([*FOR_ALL, *ONLY_FOR_SOME])


@pytest.fixture(scope="module")
def filled(oncelog_broker: BrokerProcess) -> str:
    """A topic of oncelog's with everything in it that it stores."""
    assert set(stored_by(oncelog_broker, "codecs-for-all", list(FOR_ALL)).values()) == {OK}
    return "codecs-for-all"


EXPECTED = [value.decode() for value in VALUES if value is not None] * len(FOR_ALL)


def test_librdkafka_reads_all_that_oncelog_stores(oncelog_broker: BrokerProcess, filled: str) -> None:
    command = [sys.executable, "-c", LIBRDKAFKA_READS, oncelog_broker.bootstrap, filled]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert printed.splitlines() == [*EXPECTED, "end"]


def test_java_reads_all_that_oncelog_stores(oncelog_broker: BrokerProcess, filled: str) -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    printed = run_tool(
        CONSOLE_CONSUMER,
        *(
            "--bootstrap-server",
            oncelog_broker.bootstrap,
            "--topic",
            filled,
            "--partition",
            "0",
            "--offset",
            "earliest",
        ),
        *("--max-messages", str(len(EXPECTED)), "--timeout-ms", "60000"),
    ).stdout
    assert printed.splitlines() == EXPECTED
