from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What others left is gone before, and nothing of it goes while the test looks."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
