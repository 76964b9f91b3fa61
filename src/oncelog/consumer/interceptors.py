"""The chain of interceptors: each may change records before `poll()` returns them, and each sees what is committed.

An interceptor that raises is logged and passed over; it can neither break a `poll()` nor keep its neighbours from being
asked. It runs in the thread of `poll()` and `commit()`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from oncelog.client.consumer_calls.steps import Interceptors
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

LOG_EVERY = 1_000
"""A broken interceptor fails at every poll: after its first failure, each thousandth is logged."""


class ConsumerInterceptor:
    """A base to derive from; an object with one of the two methods will do as well."""

    def on_consume(self, records: list[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Before `poll()` returns them, or iteration goes through them. Returns the records, changed
        (`record.replace(value=...)`), fewer or more. Positions count all that were read, whatever is returned."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """After an offset commit that went well."""


class InterceptorChain(Interceptors):
    def __init__(self, interceptors: Iterable[Any]) -> None:
        """Classes among them are made into objects, as Kafka does with `interceptor.classes`."""
        chain = [each() if isinstance(each, type) else each for each in interceptors]
        self._on_consume = _methods(chain, "on_consume")
        self._on_commit = _methods(chain, "on_commit")
        self._failures = 0

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        if not records:
            return records
        for intercept in self._on_consume:
            try:
                records = _checked(intercept(records))
            except Exception as error:
                self._failed(intercept, error)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for tell in self._on_commit:
            try:
                tell(offsets)
            except Exception as error:
                self._failed(tell, error)

    def _failed(self, method: Callable[..., Any], error: Exception) -> None:
        if self._failures % LOG_EVERY == 0:
            times = f" (failure {self._failures + 1} of this consumer's interceptors)" if self._failures else ""
            logger.warning("%r failed and was passed over%s", method, times, exc_info=error)
        self._failures += 1


def _checked(changed: Any) -> list[ConsumerRecord]:
    records = list(changed)
    for each in records:
        if not isinstance(each, ConsumerRecord):
            raise TypeError(f"on_consume returned {each!r:.80} among the records, not a ConsumerRecord")
    return records


def _methods(chain: Iterable[Any], name: str) -> tuple[Callable[..., Any], ...]:
    return tuple(getattr(each, name) for each in chain if hasattr(each, name))
