"""A broker that shows its metrics, for tests that look inside it from without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.support import MetricsPage
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "metrics.port": "0",
        "log.retention.ms": "-1",
        "producer.id.expiration.check.interval.ms": "86400000",  # records of tests are old
        "group.initial.rebalance.delay.ms": "0",
    }
    with OncelogBroker(tmp_path_factory.mktemp("measured"), settings) as broker:
        yield broker


@pytest.fixture
def page(measured: BrokerProcess) -> MetricsPage:
    return MetricsPage(measured)


@pytest.fixture
def client(measured: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(measured.address) as connected:
        yield connected
