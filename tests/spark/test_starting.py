"""Queries that Spark ends because a Python process was slow, as it says itself, are started again; no others."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.support.starting import MAX_SLOW_STARTS, SLOW_START, started

SLOW = f"[STREAM_FAILED] Query [id = 1] terminated with exception: {SLOW_START} SQLSTATE: XXKST"


def query(failure: str | None, last_execution: object = None) -> Any:
    """As far as it is looked at."""

    def fail(*_: object) -> None:
        if failure is not None:
            raise StreamingQueryException(failure)

    execution = SimpleNamespace(awaitInitialization=fail, lastExecution=lambda: last_execution)
    return SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: execution), awaitTermination=fail)


def starts(*queries: Any) -> tuple[Callable[[], Any], list[Any]]:
    begun: list[Any] = []

    def start() -> Any:
        begun.append(queries[len(begun)])
        return begun[-1]

    return start, begun


def test_a_query_that_was_too_slow_is_started_again() -> None:
    slow, other, good = query(SLOW), query(SLOW), query(None)
    start, begun = starts(slow, other, good)
    assert started(start) is good
    assert begun == [slow, other, good]


def test_but_not_for_ever() -> None:
    start, begun = starts(*[query(SLOW) for _ in range(9)])
    assert started(start) is begun[-1]
    assert len(begun) == 1 + MAX_SLOW_STARTS


@pytest.mark.parametrize("one", [query("out of memory"), query(SLOW, last_execution="a batch")])
def test_nor_for_another_reason_or_after_it_has_planned(one: Any) -> None:
    start, begun = starts(one)
    assert started(start) is one
    assert begun == [one]
