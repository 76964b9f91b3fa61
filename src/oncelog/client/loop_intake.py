"""The way of a plain record from `AsyncProducer.send()` into its batch, as `Intake` is for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.client.accumulator import Accumulator
from oncelog.client.delivery import OnDelivery
from oncelog.client.intake import Intake
from oncelog.records.model import HeadersInput


class LoopIntake:
    """`AsyncProducer.send` in compiled form: the result is what the accumulator makes, a future of the producer's loop.

    That it is called in that loop is not checked for every record: asking which loop runs costs as much as the rest. A
    call from elsewhere meets the check with the next batch, and asyncio's own if its result is awaited."""

    __slots__ = ("_accumulator", "_intake", "_send_early", "_send_slowly")

    def __init__(
        self,
        intake: Intake,
        accumulator: Accumulator,
        send_slowly: Callable[..., Any],
        send_early: Callable[[], None],
    ) -> None:
        """`send_early` is called when the accumulator has an early batch."""
        self._intake = intake
        self._accumulator = accumulator
        self._send_slowly = send_slowly
        self._send_early = send_early

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Any:
        if on_delivery is None:
            future = self._intake.offer(topic, value, key, headers, partition, timestamp_ms, None)
            if future is not None:
                if self._accumulator.has_early_batch:
                    self._accumulator.has_early_batch = False
                    self._send_early()
                return future
        return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
