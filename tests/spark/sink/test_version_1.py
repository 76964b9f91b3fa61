"""The same sink where transactions are of protocol 1: epochs stay, partitions are added by asking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import SETTINGS
from tests.spark.sink.on_brokers import Rig
from tests.spark.sink.test_on_brokers import (
    moments,
    rig,
    test_a_commit_that_fails_anywhere_is_made_good_by_the_replay,
    test_a_committer_that_outlives_its_driver_decides_nothing,
    test_a_second_driver_stops_the_first,
    test_an_attempt_that_wakes_after_the_decision_cannot_take_the_rows_away,
    test_decided_rows_that_a_timeout_aborted_are_salvaged,
)
from tests.spark.sink.test_refusals import run_behind
from tests.spark.support.refusals import COORDINATION, ERRORS, check_refused, refusing
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess

__all__ = [
    "moments",
    "rig",
    "test_a_commit_that_fails_anywhere_is_made_good_by_the_replay",
    "test_a_committer_that_outlives_its_driver_decides_nothing",
    "test_a_second_driver_stops_the_first",
    "test_an_attempt_that_wakes_after_the_decision_cannot_take_the_rows_away",
    "test_decided_rows_that_a_timeout_aborted_are_salvaged",
]


@pytest.fixture(scope="module")
def broker_of_version_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {**SETTINGS, "oncelog.transaction.version": "1"}
    with OncelogBroker(tmp_path_factory.mktemp("version-1"), settings) as broker:
        yield broker


@pytest.fixture
def broker(broker_of_version_1: BrokerProcess) -> BrokerProcess:
    return broker_of_version_1


@pytest.mark.parametrize("error", ERRORS)
def test_a_coordinator_that_refuses_requests(rig: Rig, error: str) -> None:
    apis = (*COORDINATION, "AddPartitionsToTxn")
    with refusing(rig.broker.bootstrap, [error], *apis) as proxy:
        run_behind(proxy, rig)
        check_refused(proxy, *apis)
