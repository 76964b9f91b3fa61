"""Producers of several places write into one transaction, which somebody else ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import oncelog
from oncelog.admin.ending import Ended, EndedOtherwise
from oncelog.client.transaction.prepared import PreparedTransaction, SharedTransaction
from oncelog.client.transaction_errors import TransactionError, TransactionMisuse
from tests.support.confluent import create_topic, read
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers


def producer(broker: BrokerProcess, name: str) -> oncelog.Producer:
    return oncelog.Producer(broker.bootstrap, transactional_id=name)


def shared(broker: BrokerProcess, name: str) -> SharedTransaction:
    with producer(broker, name) as beginner:
        beginner.init_transactions()
        beginner.begin()
        return beginner.share()


def write(broker: BrokerProcess, transaction: SharedTransaction, topic: str, partition: int) -> PreparedTransaction:
    with producer(broker, transaction.transactional_id) as writer:
        writer.join(transaction)
        for number in range(5):
            writer.send(topic, f"{partition}-{number}", partition=partition)
        prepared = writer.prepare()
    assert prepared is not None
    return prepared


def test_what_all_of_them_wrote_becomes_visible_at_once(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    create_topic(broker, topic, partitions=2)
    transaction = shared(broker, topic)
    first, second = (write(broker, transaction, topic, partition) for partition in range(2))
    assert first == second == PreparedTransaction(topic, transaction.producer_id, transaction.producer_epoch)
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.end_transaction(first, commit=True)
    for partition in range(2):
        found = read(broker, topic, 5, partition=partition, isolation_level="read_committed")
        assert [one.value() for one in found] == [f"{partition}-{number}".encode() for number in range(5)]


def test_many_transactions_are_committed_at_once(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    """One of them was aborted meanwhile: it is told of, and harms no other."""
    topic = new_topic()
    create_topic(broker, topic, partitions=3)
    open_ones = [write(broker, shared(broker, f"{topic}-{index}"), topic, index) for index in range(3)]
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.end_transaction(open_ones[1], commit=False)
        outcomes = admin.commit_transactions(open_ones)
        again = admin.commit_transactions(open_ones)
    for ended in (outcomes, again):
        assert ended[open_ones[0]] is ended[open_ones[2]] is Ended.COMMITTED
        error = ended[open_ones[1]]
        assert isinstance(error, TransactionError)
        assert isinstance(error, EndedOtherwise)
        assert error.outcome is Ended.ABORTED


def test_who_joins_too_late_is_fenced(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    old, new = shared(broker, topic), shared(broker, topic)
    with pytest.raises(TransactionError):
        write(broker, old, topic, 0)
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.end_transaction(write(broker, new, topic, 0), commit=True)
    assert len(read(broker, topic, 5, isolation_level="read_committed")) == 5


def test_misuse_changes_nothing(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    transaction = shared(broker, name)
    with producer(broker, name) as writer:
        with pytest.raises(TransactionMisuse, match="begin"):
            writer.share()
        with pytest.raises(TransactionMisuse, match="another"):
            writer.join(transaction._replace(transactional_id="another"))
        writer.join(transaction)
        with pytest.raises(TransactionMisuse, match=r"join\(\) is called once"):
            writer.join(transaction)
        with pytest.raises(TransactionMisuse, match=r"init_transactions\(\) is called once"):
            writer.init_transactions()
