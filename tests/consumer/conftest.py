"""Members of groups for tests, closed when a test is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.consumer.consumer import Consumer
from tests.consumer.scene import Make
from tests.support.process import BrokerProcess


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[Make]:
    """Members that are closed at the end, in the order in which they came."""
    made: list[Consumer] = []

    def make(topic: str, **settings: Any) -> Consumer:
        fast = {"fetch_max_wait_ms": 100, "metadata_max_age_ms": 500, "auto_offset_reset": "earliest"}
        made.append(Consumer(broker.bootstrap, group_id=f"group-of-{topic}", **{**fast, **settings}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()
