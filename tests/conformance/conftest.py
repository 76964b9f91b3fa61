"""What the suites of transactions share: a connection to a broker whose transaction coordinator serves, a topic of two
partitions, and a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.groups import await_coordinator
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic
from tests.support.transactions import HandProducer, await_transactions


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        await_transactions(client)
        yield client


@pytest.fixture
def topic(client: RawClient, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def group(client: RawClient, topic: str) -> str:
    await_coordinator(client, f"group-of-{topic}")
    return f"group-of-{topic}"


@pytest.fixture
def producer(client: RawClient, topic: str) -> HandProducer:
    """By protocol 2, unless a test makes it another."""
    return HandProducer(client, f"writer of {topic}").begun()
