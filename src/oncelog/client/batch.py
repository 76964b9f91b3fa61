"""A batch on its way: open while records join it, sealed once it is drained, numbered if the producer is idempotent.

`position` is the number of the batch's first record in its partition's sequence, unwrapped: it orders batches where
sequence numbers, which wrap, cannot. A batch that was ever sent keeps id, epoch and position until its fate is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.client.delivery import Delivery, OnDelivery
from oncelog.records import kernel
from oncelog.records.batch import decode_records
from oncelog.records.model import Buffer, HeadersInput
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, advance_sequence

UNNUMBERED = -1
NO_TIMESTAMPS: list[int] = []


class ProducerBatch:
    __slots__ = (
        "_append", "_callbacks", "_last_ms", "_last_timestamp_ms", "_native", "_timestamps_ms", "attempts", "buffer",
        "builder", "charged_bytes", "created_ms", "delivery", "is_abandoned", "is_doubted", "is_in_flight",
        "is_listed", "is_open", "is_revived", "may_be_written", "ordinal", "partition", "position", "producer_epoch",
        "producer_id", "record_count", "retry_at_ms", "size_bytes", "topic", "was_first_in_line",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, created_ms: int, size_hint: int, delivery: Delivery, expected_bytes: int = 0
    ) -> None:
        """`size_hint` is how large it becomes at most, as long as its records are small; `expected_bytes`, probably."""
        self.topic = topic
        self.partition = partition
        self.created_ms = created_ms
        self.delivery = delivery
        self.builder: kernel.BatchBuilder | None = kernel.BatchBuilder(None, size_hint, expected_bytes)
        self._native = self.builder if kernel.NATIVE else None
        self._append: Callable[..., int] | None = None if kernel.NATIVE else self.builder.append
        self.size_bytes = self.builder.size_bytes
        self.record_count = 0
        self.charged_bytes = 0
        """What it takes of `buffer.memory`."""
        self._callbacks: list[OnDelivery | None] | None = None
        """By the index of their record, and as long as the last one needs; None if there is none."""
        self._timestamps_ms: list[int] = NO_TIMESTAMPS
        """Of the same records."""
        self._last_ms = self._last_timestamp_ms = 0
        self.is_open = True
        self.buffer: bytearray | memoryview | None = None
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.position = UNNUMBERED
        self.ordinal = UNNUMBERED
        """How many batches of its partition were sent before it; parts of a batch share it, and no retry changes it."""
        self.attempts = 0
        self.retry_at_ms = 0
        self.is_in_flight = False
        self.may_be_written = False
        """A broker may have stored it, though none said so."""
        self.was_first_in_line = False
        """When it was last sent, no earlier batch of its partition was unsettled."""
        self.is_revived = False
        """An earlier process sent it, and the leader said whether it has it."""
        self.is_doubted = False
        """A broker called it out of order though it may have stored it; it is in no queue until another batch tells."""
        self.is_listed = False
        """The leader said that it has it: out of order means stored, long ago."""
        self.is_abandoned = False
        """Its records were already reported as failed; only its fate is still waited for."""

    def append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: HeadersInput) -> int:
        """Add a record; returns its index. Raises TypeError and leaves the batch as it was if a field is no bytes."""
        if self._native is not None:  # compiled, this is no Python call
            self.size_bytes = self._native.append(timestamp_ms, key, value, headers)
        else:
            assert self._append is not None
            self.size_bytes = self._append(timestamp_ms, key, value, headers)
        index = self.record_count
        self.record_count = index + 1
        return index

    def append_rows(self, rows: kernel.RowSource, start: int, stop: int, limit_bytes: int, order: Buffer | None) -> int:
        """Add rows of a table, as `BatchBuilder.append_columns` does, and charge for them; returns where it ended."""
        builder = self.builder
        assert builder is not None
        try:
            return builder.append_columns(rows, start, stop, limit_bytes, order)
        finally:  # a row that is refused leaves those before it in the batch
            self.charged_bytes += builder.size_bytes - self.size_bytes
            self.size_bytes = builder.size_bytes
            self.record_count = builder.record_count

    def call_back(self, index: int, timestamp_ms: int, on_delivery: OnDelivery) -> None:
        """Tell `on_delivery` what becomes of the record."""
        if self._callbacks is None:
            self._callbacks, self._timestamps_ms = [], []
        callbacks = self._callbacks
        missing = index - len(callbacks)
        if missing:
            callbacks.extend([None] * missing)
            self._timestamps_ms.extend([0] * missing)
        callbacks.append(on_delivery)
        if timestamp_ms != self._last_ms:  # a thousand records of one millisecond share one number
            self._last_ms = self._last_timestamp_ms = timestamp_ms
        self._timestamps_ms.append(self._last_timestamp_ms)

    @property
    def has_callbacks(self) -> bool:
        return bool(self._callbacks)

    def run_callbacks(self, on_raise: Callable[[], None]) -> None:
        """In the order of the records. One that raises does not keep the others from being told."""
        delivery = self.delivery
        error = delivery.error
        first = delivery.first_index
        callbacks, timestamps_ms = self._callbacks or [], self._timestamps_ms
        self._callbacks = None
        for index in range(len(callbacks)):
            on_delivery = callbacks[index]
            if on_delivery is not None:
                try:
                    if error is None:
                        on_delivery(delivery.metadata(first + index, timestamps_ms[index]), None)
                    else:
                        on_delivery(None, delivery.error_of(first + index))
                except BaseException:  # even an exit: it would end the sender's thread, and not the program
                    on_raise()

    def resolve_futures(self) -> None:
        """As `run_callbacks`, where each callback is a future as asyncio's. One that was cancelled is left alone: the
        record is stored all the same."""
        delivery = self.delivery
        error = delivery.error
        first = delivery.first_index
        futures, timestamps_ms = self._callbacks or [], self._timestamps_ms
        self._callbacks = None
        for index in range(len(futures)):
            future: Any = futures[index]
            if future is not None and not future.done():
                if error is None:
                    future.set_result(delivery.metadata(first + index, timestamps_ms[index]))
                else:
                    future.set_exception(delivery.error_of(first + index))
                    future.exception()  # seen: a result that nobody looks at is no warning

    @property
    def is_numbered(self) -> bool:
        return self.position != UNNUMBERED

    @property
    def base_sequence(self) -> int:
        return advance_sequence(0, self.position) if self.position != UNNUMBERED else NO_SEQUENCE

    def number(self, producer_id: int, producer_epoch: int, position: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.position = position
        if self.buffer is not None:
            kernel.renumber(self.buffer, 0, producer_id, producer_epoch, self.base_sequence)

    def was_sent_before(self, other: ProducerBatch) -> bool:
        if self.ordinal == other.ordinal:
            return self.delivery.first_index < other.delivery.first_index
        return UNNUMBERED < self.ordinal < other.ordinal

    def forget_number(self) -> None:
        """Only for a batch that is known not to be written. How often it was sent, and when it may be again, stays:
        brokers that refuse every number must not be asked without a pause, nor for ever."""
        assert not self.may_be_written
        self.position = UNNUMBERED

    def sealed(self, codec: int, level: int | None, is_transactional: bool = False) -> bytearray | memoryview:
        """The bytes to send."""
        if self.buffer is None:
            assert self.builder is not None
            self.buffer = self.builder.seal(
                codec=codec,
                compression_level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=is_transactional,
            )
            self.builder = self._append = self._native = None
        return self.buffer

    def split(self, codec: int, level: int | None, is_transactional: bool = False) -> list[ProducerBatch]:
        """Two batches with half of the records each, in the same places of the sequence. Only for a sealed batch of
        more than one record."""
        assert self.buffer is not None
        records = decode_records(self.buffer)
        middle = len(records) // 2
        halves = []
        for first, part in ((0, records[:middle]), (middle, records[middle:])):
            first_index = self.delivery.first_index + first
            delivery = Delivery(self.topic, self.partition, self.delivery.new_waiter, first_index)
            half = ProducerBatch(self.topic, self.partition, self.created_ms, self.size_bytes // 2, delivery)
            for one in part:
                half.append(one.timestamp_ms, one.key, one.value, one.headers)
            half.is_open = False
            half.charged_bytes = self.charged_bytes * len(part) // len(records)
            half._callbacks = (self._callbacks or [])[first : first + len(part)]
            half._timestamps_ms = self._timestamps_ms[first : first + len(part)]
            half.ordinal = self.ordinal
            if self.is_numbered:
                half.number(self.producer_id, self.producer_epoch, self.position + first)
            half.sealed(codec, level, is_transactional)
            halves.append(half)
        halves[0].charged_bytes = self.charged_bytes - halves[1].charged_bytes
        self.delivery.split_into([half.delivery for half in halves])
        return halves

    def __repr__(self) -> str:
        number = f" {self.producer_id}/{self.producer_epoch}#{self.position}" if self.is_numbered else ""
        return f"<batch of {self.record_count} for {self.topic}-{self.partition}{number}>"
