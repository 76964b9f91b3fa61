"""The way of a plain record from `send()` into its batch: as short as it can be, since every record goes it.

Plain is a record of bytes or text for a known topic, in a producer without interceptors or serializers of its own, with
room in the open batch of its partition, or memory for another one. `offer` returns None for everything else, having
changed nothing that matters, and the shell goes the long way. `send` is what `Producer.send` is in compiled form: both
ways in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.client.accumulator import Accumulator
from oncelog.client.callbacks import DeliveryCallbacks, kind_of
from oncelog.client.delivery import OnDelivery
from oncelog.client.placement import Placement
from oncelog.client.record_checks import MAX_TIMESTAMP_MS, NOT_GIVEN, check_value, refuse_foreign
from oncelog.client.records import HeadersGiven, read_ms


class Intake:
    __slots__ = (
        "_accumulator", "_callbacks", "_clock", "_last_callback", "_placement", "_send_slowly", "begin_batch",
        "is_open",
    )  # fmt: skip

    def __init__(
        self,
        accumulator: Accumulator,
        placement: Placement,
        clock: Callable[[], float],
        send_slowly: Callable[..., Any] | None = None,
        begin_batch: Callable[..., Any] | None = None,
    ) -> None:
        """`clock` tells the time of day in seconds, for records that have none of their own; `send_slowly` is the long
        way, with the arguments of `send`; `begin_batch` is for a record that finds no open batch with room, and returns
        None if there is no memory for another one."""
        self._accumulator = accumulator
        self._placement = placement
        self._clock = clock
        self._send_slowly = send_slowly
        self.begin_batch = begin_batch
        self._callbacks = DeliveryCallbacks()
        self._last_callback: Any = None
        """The kind of the callback that came last: it need not be looked at again."""
        self.is_open = True
        """Whether any record may go this way."""

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
    ) -> Any:
        if timestamp is not None or callback is not None:
            refuse_foreign(timestamp, callback)
        if on_delivery is not None and kind_of(on_delivery) is not self._last_callback:
            self._check_callback(on_delivery)
        future = self.offer(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if future is None:
            assert self._send_slowly is not None
            check_value(value)
            return self._send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return future

    def _check_callback(self, on_delivery: Any) -> None:
        self._callbacks.check(on_delivery)
        self._last_callback = kind_of(on_delivery)

    def send_plain(self, topic: str, outputs: list[Any]) -> int:
        """Values and `(key, value)` pairs, in their order, until one is not plain; returns how many were taken. What
        becomes of them only their transaction tells, or `flush()`."""
        count = 0
        for output in outputs:
            if type(output) is tuple and len(output) == 2:
                future = self.offer(topic, output[1], output[0], None, None, None, None)
            elif type(output) is bytes or type(output) is str:
                future = self.offer(topic, output, None, None, None, None, None)
            else:
                return count
            if future is None:
                return count
            count += 1
        return count

    def offer(  # noqa: PLR0911 - a way out for everything that is not plain
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersGiven | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: Any,
    ) -> Any:
        """`on_delivery` is what the shell's `on_settled` understands: a callback, or a future of its own."""
        if not self.is_open:
            return None
        try:
            if value is not None and type(value) is not bytes:
                if type(value) is not str:
                    return None
                value = value.encode()
            if key is not None and type(key) is not bytes:
                if type(key) is not str:
                    return None
                key = key.encode()
        except UnicodeEncodeError:
            return None
        queues = self._accumulator.topics.get(topic) if type(topic) is str else None
        if queues is None or (headers and not _are_plain(headers)):
            return None
        if partition is not None and (type(partition) is not int or not 0 <= partition < len(queues.queues)):
            return None
        if timestamp_ms is None:
            moment_ms = read_ms(self._clock)
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
            return None
        else:
            moment_ms = timestamp_ms
        plain: Any = headers or ()
        queue = self._placement.queue_for(queues, partition, key, value)
        future = self._accumulator.append(queue, moment_ms, key, value, plain, on_delivery)
        if future is None and self.begin_batch is not None:
            future = self.begin_batch(queue, moment_ms, key, value, plain, on_delivery)
        return future


def _are_plain(headers: Any) -> bool:
    """Pairs of ASCII text and bytes, in a list or tuple."""
    if type(headers) is not tuple and type(headers) is not list:
        return False
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return False
        name, value = header
        if type(name) is not str or not name.isascii() or (value is not None and type(value) is not bytes):
            return False
    return True
