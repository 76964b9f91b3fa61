"""Transactions of kafkajs, which speaks the first versions of their requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.process import BrokerProcess
from tests.support.remote_client import RemoteClient
from tests.support.transaction_suite import OffsetSuite

PROGRAM = Path(__file__).with_name("kafkajs_transactions.js")


class KafkaJS(RemoteClient):
    codecs = ("none", "gzip")
    fenced = overdue = ("INVALID_PRODUCER_EPOCH",)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RemoteClient]:
    modules = str(parts.required(parts.kafkajs) / "node_modules")
    client = KafkaJS(["node", str(PROGRAM), broker.bootstrap], NODE_PATH=modules)
    yield client
    client.close()


class TestTransactions(OffsetSuite):
    """The suite of every client."""
