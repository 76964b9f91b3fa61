"""The way of a plain record from `AsyncProducer.send()` into its batch, as `Intake` is for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from oncelog.client.accumulator import Accumulator
from oncelog.client.delivery import OnDelivery
from oncelog.client.intake import Intake
from oncelog.client.record_checks import NOT_GIVEN, check_value, refuse_foreign
from oncelog.client.records import HeadersGiven, RecordMetadata


class LoopIntake:
    """What `AsyncProducer` inherits `send` from: compiled, and found without a detour.

    That it is called in the producer's loop is not checked for every record: asking which loop runs costs as much as
    the rest. A call from elsewhere meets the check with the next batch, and asyncio's own if its result is awaited."""

    __slots__ = ("_accumulator", "_intake", "_send_early")

    def __init__(self, intake: Intake, accumulator: Accumulator, send_early: Callable[[], None]) -> None:
        """`send_early` is called when the accumulator has an early batch."""
        self._intake = intake
        self._accumulator = accumulator
        self._send_early = send_early

    def send(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        headers: HeadersGiven | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
        *,
        timestamp: None = None,
        callback: None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Accept a record for sending; await the result for where it was stored. It is a future to asyncio
        (`asyncio.isfuture`, `gather`, `wait_for` and all others), though for most records not of the class that asyncio
        has: `LoopFuture` says why.

        Raises at once what is wrong with the record itself, and BufferExhausted if thousands of records already wait
        for room: await some of them first.
        """
        future: asyncio.Future[RecordMetadata] | None
        if timestamp is not None or callback is not None:
            refuse_foreign(timestamp, callback)
        if on_delivery is None:
            future = self._intake.offer(topic, value, key, headers, partition, timestamp_ms, None)
            if future is not None:
                if self._accumulator.has_early_batch:
                    self._accumulator.has_early_batch = False
                    self._send_early()
                return future
        check_value(value)
        return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersGiven | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> asyncio.Future[RecordMetadata]:
        """For a record that is not plain, or not yet."""
        raise NotImplementedError
