"""Kafka's own tool for transactions (`kafka-transactions.sh`): it shows what ours shows, and ends what hangs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from oncelog.admin import Admin
from tests.support.hanging import write_stray
from tests.support.kafka import run_tool
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic
from tests.support.transactions import HandProducer, await_transactions, end_offset, last_stable_offset

pytestmark = pytest.mark.kafka

TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        await_transactions(client)
        yield client


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def table(broker: BrokerProcess, *words: str) -> list[dict[str, str]]:
    """What the tool prints: a line of names and lines of values, between tabs."""
    printed = run_tool(TOOL, "--bootstrap-server", broker.bootstrap, *words).stdout.splitlines()
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in printed if "\t" in line]
    return [{name: cell for name, cell in zip(head, row, strict=True) if name} for row in rows]


def begun(client: RawClient) -> HandProducer:
    return HandProducer(client, f"tool-{uuid.uuid4().hex[:8]}").begun()


def test_it_shows_what_ours_shows(broker: BrokerProcess, admin: Admin, client: RawClient) -> None:
    topic = f"tool-{uuid.uuid4().hex[:8]}"
    create_topic(client, topic, partitions=2)
    ended, opened = begun(client), begun(client)
    assert ended.produce(topic) == "none"
    ended.ended(commit=True)
    assert [opened.produce(topic, partition=index) for index in (0, 1)] == ["none", "none"]

    listed = {
        (one["TransactionalId"], int(one["Coordinator"]), int(one["ProducerId"]), one["TransactionState"])
        for one in table(broker, "list", "--transactional-id-pattern", "tool-.*")
    }
    ours = admin.list_transactions(pattern="tool-.*")
    assert listed == {(one.transactional_id, one.coordinator_id, one.producer_id, one.state) for one in ours}
    assert {opened.transactional_id, ended.transactional_id} <= {one.transactional_id for one in ours}

    (shown,) = table(broker, "describe", "--transactional-id", opened.transactional_id)
    one = admin.describe_transactions([opened.transactional_id])[opened.transactional_id]
    assert {name: shown[name] for name in shown if name not in ("TransactionDurationMs", "TopicPartitions")} == {
        "CoordinatorId": str(one.coordinator_id),
        "TransactionalId": one.transactional_id,
        "ProducerId": str(one.producer_id),
        "ProducerEpoch": str(one.producer_epoch),
        "TransactionState": one.state,
        "TransactionTimeoutMs": str(one.timeout_ms),
        "CurrentTransactionStartTimeMs": str(one.start_ms),
    }
    assert set(shown["TopicPartitions"].split(",")) == set(map(str, one.partitions))


def test_it_finds_and_aborts_what_hangs(broker: BrokerProcess, client: RawClient) -> None:
    topic = f"tool-{uuid.uuid4().hex[:8]}"
    create_topic(client, topic)
    producer = write_stray(broker, client, topic, partition=0)
    where = ("--topic", topic, "--partition", "0")
    (found,) = table(broker, "find-hanging", *where, "--max-transaction-timeout", "0")
    assert (found["Topic"], found["ProducerId"], found["StartOffset"]) == (topic, str(producer.producer_id), "0")
    run_tool(TOOL, "--bootstrap-server", broker.bootstrap, "abort", *where, "--start-offset", found["StartOffset"])
    assert last_stable_offset(client, topic) == end_offset(client, topic) == 2
