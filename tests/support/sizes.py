"""What a test run has time for: with ONCELOG_SOAK (`make faults`) everything, else a part of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])

IS_SOAK = "ONCELOG_SOAK" in os.environ

long_at_full_size = pytest.mark.timeout(3_600 if IS_SOAK else 900)


def examples(count: int) -> int:
    """How many cases Hypothesis makes up."""
    return count if IS_SOAK else max(1, count // 2)


def on_both_brokers_at_full_size(test: Test) -> Test:
    return pytest.mark.on_both_brokers(test) if IS_SOAK else test


def only_at_full_size(why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not IS_SOAK, reason=f"ONCELOG_SOAK: {why}")
