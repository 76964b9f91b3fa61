"""Transactions of kafkajs, which speaks the first versions of their requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.process import BrokerProcess
from tests.support.remote_client import KafkaJS, RemoteClient
from tests.support.transaction_suite import OffsetSuite


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RemoteClient]:
    client = KafkaJS(broker.bootstrap)
    yield client
    client.close()


class TestTransactions(OffsetSuite):
    """The suite of every client."""
