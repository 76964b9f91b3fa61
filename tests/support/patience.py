"""Waiting on a machine that may be busy: as long as it takes, up to a bound that only a bug reaches."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncelog.client.producer_errors import TopicUnavailable

PATIENCE_S = 60.0
POLL_S = 0.005

T = TypeVar("T")


def eventually(condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(POLL_S)


# A small `max.block.ms` may pass before a broker could answer at all. Where it is the subject of a test, or only in its
# way, what is asked is asked again until the producer has heard what it needs; then the limit works as it should.


def once_heard(ask: Callable[[], T], wanted: str | None = None) -> T:
    """What `ask` returns or raises, but for a TopicUnavailable that does not say what is `wanted`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except TopicUnavailable as error:
            if _says(error, wanted) or time.monotonic() > deadline:
                raise


async def once_heard_async(ask: Callable[[], Awaitable[T]], wanted: str | None = None) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await ask()
        except TopicUnavailable as error:
            if _says(error, wanted) or time.monotonic() > deadline:
                raise


def _says(error: TopicUnavailable, wanted: str | None) -> bool:
    return wanted is not None and re.search(wanted, str(error)) is not None
