from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processing.scene import Scene
from tests.support.process import BrokerProcess


@pytest.fixture
def scene(broker: BrokerProcess, new_topic: Callable[[], str]) -> Scene:
    return Scene(broker, new_topic)
