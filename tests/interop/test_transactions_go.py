"""Transactions of franz-go, which speaks version 2 of their protocol where the cluster has it, else version 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.confluent import create_topic, make_producer, send
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.remote_client import FranzGo, RemoteClient
from tests.support.transaction_suite import TransactionSuite
from tests.support.transactions import await_transactions, seen

PARTITIONS = 4
COUNT = 40


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RemoteClient]:
    client = FranzGo(broker.bootstrap)
    yield client
    client.close()


class TestTransactions(TransactionSuite):
    """The suite of every client."""


@pytest.mark.on_both_brokers
def test_a_rebalance_undoes_what_was_begun_before_it(
    broker: BrokerProcess, client: RemoteClient, new_topic: Callable[[], str]
) -> None:
    """Members that copy a topic: whoever joins, each record is copied once."""
    source, target = new_topic(), new_topic()
    create_topic(broker, source, partitions=PARTITIONS)
    create_topic(broker, target)
    values = [b"%d" % n for n in range(COUNT)]
    send(make_producer(broker), source, ({"value": each, "partition": int(each) % PARTITIONS} for each in values))
    with RawClient(broker.address) as raw:
        await_transactions(raw)
        told = {"topic": source, "target": target, "group": f"group-of-{source}", "transactional_id": source}
        assert client.do({"do": "process", "count": COUNT, **told}) == {"committed": COUNT, "overtaken": False}
    assert sorted(seen(broker, target), key=int) == values
