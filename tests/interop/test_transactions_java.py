"""Transactions of Apache Kafka's own client (version 2 of their protocol), as its system tests run them: copiers that
consume, abort at random and are killed, and the tools that look at transactions and end them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.confluent import create_topic
from tests.support.copier import EVENS, ODDS, PARTITIONS, Copier, copiers, once_stable, write_numbers
from tests.support.kafka import run_tool
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import HandProducer, await_transactions

TOOLS = "org.apache.kafka.tools"


@pytest.fixture(autouse=True)
def jars() -> Path:
    parts.required(parts.java)
    return parts.required(parts.kafka_libs)


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        await_transactions(client)
        yield client


@pytest.fixture
def topics(broker: BrokerProcess, new_topic: Callable[[], str]) -> tuple[str, str]:
    """One to copy from, and one to copy to."""
    source, target = new_topic(), new_topic()
    for topic in (source, target):
        create_topic(broker, topic, partitions=PARTITIONS)
    return source, target


@pytest.mark.on_both_brokers
def test_a_copier_takes_over_from_one_that_was_killed(
    broker: BrokerProcess, raw: RawClient, topics: tuple[str, str]
) -> None:
    """It asks for offsets before it ends what is open: were they pending, it would wait until that has timed out."""
    write_numbers(broker, topics[0])
    with copiers(Copier(broker, topics, "copier", "--enable-random-aborts")) as (first,):
        eventually(lambda: first.processed() > 0, "the first is at work")
    HandProducer(raw, first.transactional_id).begun()
    with copiers(Copier(broker, topics, "copier", "--enable-random-aborts")):
        assert once_stable(raw, topics[1], [len(EVENS), 0]) == [EVENS, []]


@pytest.mark.on_both_brokers
def test_copiers_share_a_group(broker: BrokerProcess, raw: RawClient, topics: tuple[str, str]) -> None:
    """What one has open when its partition goes to the other is aborted there, and done here."""
    write_numbers(broker, topics[0])
    options = ("--group-mode", "--use-group-metadata", "--enable-random-aborts")
    with copiers(Copier(broker, topics, "one", *options), Copier(broker, topics, "other", *options)):
        assert once_stable(raw, topics[1], [len(EVENS), len(ODDS)]) == [EVENS, ODDS]


def test_the_performance_tool(broker: BrokerProcess, raw: RawClient, topics: tuple[str, str]) -> None:
    """Some transactions over both partitions, of many compressed batches."""
    options = {
        "--bootstrap-server": broker.bootstrap,
        "--topic": topics[0],
        "--num-records": "1000",
        "--throughput": "-1",
        "--transaction-duration-ms": "20",
        "--transactional-id": f"performs-{topics[0]}",
    }
    properties = ("--command-property", "compression.type=zstd", "batch.size=1024", "linger.ms=1")
    words = [word for pair in options.items() for word in pair]
    run_tool(f"{TOOLS}.ProducerPerformance", *words, "--payload-monotonic", *properties)
    written = [value for partition in once_stable(raw, topics[0], [0, 0]) for value in partition]
    assert sorted(written) == list(range(1_000))


def test_the_tool_ends_an_open_transaction(broker: BrokerProcess, raw: RawClient, topics: tuple[str, str]) -> None:
    producer = HandProducer(raw, f"hangs-{topics[0]}").begun()
    assert producer.produce(topics[0], b"open") == "none"
    words = ("forceTerminateTransaction", "--transactionalId", producer.transactional_id)
    run_tool(f"{TOOLS}.TransactionsCommand", "--bootstrap-server", broker.bootstrap, *words)
    assert producer.rest() == "Empty"
    assert producer.end(commit=True) == "producer_fenced"
    assert once_stable(raw, topics[0], [0, 0]) == [[], []]
