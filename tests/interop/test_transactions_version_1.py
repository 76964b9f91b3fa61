"""Clients of the newer protocol of transactions on brokers that are told to speak the older one: transaction.version 1,
as clusters have it that were upgraded but not told to use what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import SETTINGS
from tests.support import parts
from tests.support.broker import OncelogBroker
from tests.support.confluent import create_topic
from tests.support.copier import EVENS, PARTITIONS, Copier, copiers, once_stable, write_numbers
from tests.support.oncelog_transactions import Oncelog
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.remote_client import FranzGo
from tests.support.transaction_suite import OffsetSuite, TransactionSuite
from tests.support.transactions import await_transactions

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka is the one of all tests, and afterwards as it was."""
    if request.param == "kafka":
        running: BrokerProcess = request.getfixturevalue("kafka_broker")
        finalize(running, 1, SAFE_DOWNGRADE)
        yield running
        finalize(running, 2, UPGRADE)
    else:
        with OncelogBroker(tmp_path_factory.mktemp("older"), {**SETTINGS, "oncelog.transaction.version": "1"}) as own:
            yield own


def finalize(broker: BrokerProcess, level: int, kind: int) -> None:
    update = {"feature": FEATURE, "max_version_level": level, "upgrade_type": kind}
    with RawClient(broker.address) as raw:
        answer = raw.request("update_features", 1, {"timeout": 30_000, "feature_updates": [update]})
        assert answer["error_code"] == 0, answer
        eventually(lambda: told(raw) == level, f"{FEATURE} {level}")


def told(raw: RawClient) -> int:
    """The level that clients hear of."""
    asked = {"client_software_name": "test", "client_software_version": "1"}
    features = raw.request("api_versions", 4, asked)["finalized_features"]
    return next(each["max_version_level"] for each in features if each["name"] == FEATURE)


class FranzGoBefore(FranzGo):
    fenced = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    overdue = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[FranzGo]:
    client = FranzGoBefore(broker.bootstrap)
    yield client
    client.close()


class TestTransactions(TransactionSuite):
    """The suite of every client."""


class TestOurProducer(OffsetSuite):
    @pytest.fixture
    def client(self, broker: BrokerProcess) -> Oncelog:
        return Oncelog(broker)


@pytest.mark.on_both_brokers
def test_a_copier(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    topics = new_topic(), new_topic()
    for topic in topics:
        create_topic(broker, topic, partitions=PARTITIONS)
    with RawClient(broker.address) as raw:
        await_transactions(raw)
        assert told(raw) == 1
        write_numbers(broker, topics[0])
        with copiers(Copier(broker, topics, "copier", "--enable-random-aborts")):
            assert once_stable(raw, topics[1], [len(EVENS), 0]) == [EVENS, []]
