"""Telling users: everyone, in order, whatever they raise."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery
from oncelog.client.records import RecordMetadata
from oncelog.producer.callbacks import run_callbacks, tell

RAISERS = [lambda *_: 1 / 0, lambda *_: sys.exit(1)]


@pytest.mark.parametrize("raiser", RAISERS, ids=["raises", "exits"])
def test_one_that_raises_is_logged_and_the_others_are_told(raiser: Any, caplog: pytest.LogCaptureFixture) -> None:
    batch = ProducerBatch("orders", 0, 0, 0, Delivery("orders", 0, threading.Event))
    told: list[int] = []
    for index, callback in enumerate([lambda metadata, _: told.append(metadata.offset), raiser] * 2):
        batch.append(0, None, b"", ())
        batch.call_back(index, 0, callback)
    batch.delivery.settle(10, -1)
    run_callbacks(batch)
    assert told == [10, 12]
    assert [one.message.startswith("a delivery callback raised") for one in caplog.records] == [True, True]


@pytest.mark.parametrize("raiser", RAISERS, ids=["raises", "exits"])
def test_a_single_one_that_raises_is_logged(raiser: Any, caplog: pytest.LogCaptureFixture) -> None:
    tell(raiser, None, OSError())
    assert len(caplog.records) == 1


def test_a_single_one_is_told() -> None:
    told: list[Any] = []
    metadata = RecordMetadata("orders", 0, 1, 2)
    tell(lambda *outcome: told.append(outcome), metadata, None)
    assert told == [(metadata, None)]
