"""The chain of interceptors: each may change a record before it is sent, and each sees what became of it.

An interceptor that raises is logged and passed over; it can neither break a send nor keep its neighbours from being
asked. It runs in the thread of `send()`, or in the one that learns of the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from oncelog.client.callbacks import check_callback
from oncelog.client.delivery import OnDelivery
from oncelog.client.records import ProducerRecord, RecordMetadata

logger = logging.getLogger(__name__)

LOG_EVERY = 1_000
"""A broken interceptor fails for every record: after its first failure, each thousandth is logged."""


class Interceptor:
    """A base to derive from; an object with one of the two methods will do as well."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Before serializers and partitioner. Returns the record, or another one in its place."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """When the fate of a record is known: exactly one of the two is None."""


class InterceptorChain:
    __slots__ = ("_failures", "_on_acknowledgement", "_on_send", "is_needed")

    def __init__(self, interceptors: Iterable[Any]) -> None:
        """Classes among them are made into objects, as Kafka does with `interceptor.classes`."""
        chain = [each() if isinstance(each, type) else each for each in interceptors]
        self._on_send = _methods(chain, "on_send")
        self._on_acknowledgement = _methods(chain, "on_acknowledgement")
        for method in self._on_acknowledgement:
            check_callback(method, "on_acknowledgement", "metadata")
        self._failures = 0
        self.is_needed = bool(chain)
        """Without interceptors nobody need call; read for every record, hence no property."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for intercept in self._on_send:
            try:
                changed = intercept(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send returned {changed!r:.80}, not a ProducerRecord")
                record = changed
            except Exception as error:
                self._failed(intercept, error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for tell in self._on_acknowledgement:
            try:
                tell(metadata, error)
            except Exception as failure:
                self._failed(tell, failure)

    def acknowledging(self, on_delivery: OnDelivery | None) -> OnDelivery | None:
        """A callback that tells the interceptors, as Kafka does, before it tells `on_delivery`."""
        if not self._on_acknowledgement:
            return on_delivery

        def tell_all(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return tell_all

    def _failed(self, method: Callable[..., Any], error: Exception) -> None:
        if self._failures % LOG_EVERY == 0:
            times = f" (failure {self._failures + 1} of this producer's interceptors)" if self._failures else ""
            logger.warning("%r failed and was passed over%s", method, times, exc_info=error)
        self._failures += 1


def _methods(chain: Iterable[Any], name: str) -> tuple[Callable[..., Any], ...]:
    return tuple(getattr(each, name) for each in chain if hasattr(each, name))
