"""`send_table` of `Producer`: the loop that puts a table's rows into batches, and waits where memory is full; and what
it has in common with that of `AsyncProducer`.

What is wrong with the table itself is raised at once, before anything is sent. What goes wrong later, with a part of
the rows already on their way, is the result of the whole.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from oncelog.client.accumulator import TopicQueues
from oncelog.client.partitioner import checked_partition
from oncelog.client.producer_errors import BufferExhausted, DeliveryFailed
from oncelog.client.sockets import monotonic_ms
from oncelog.client.table_result import OnTableDelivery, TableFuture
from oncelog.client.table_sending import Step, TableSending
from oncelog.producer.assembly import Parts, wall_clock_ms

if TYPE_CHECKING:
    from oncelog.producer.producer import Producer
    from oncelog.records.arrow_columns import TableColumns


def columns_of(
    table: Any,
    key: str | None,
    value: str | None,
    headers: str | None,
    timestamp: str | None,
    partition: str | int | None,
) -> TableColumns:
    """The table's columns as fields of records. Raises what is wrong with them."""
    try:
        from oncelog.records.arrow_columns import TableColumns
    except ImportError as error:
        raise ImportError(f"send_table needs pyarrow ({error}): pip install 'oncelog[arrow]'") from error
    return TableColumns.of(table, key=key, value=value, headers=headers, timestamp=timestamp, partition=partition)


def new_sending(
    parts: Parts, columns: TableColumns, topic: TopicQueues, future: TableFuture, new_waiter: Any
) -> TableSending:
    return TableSending(
        columns,
        topic,
        wall_clock_ms(),
        accumulator=parts.accumulator,
        placement=parts.placement,
        config=parts.config,
        new_waiter=new_waiter,
        future=future,
    )


def give_up(parts: Parts, sending: TableSending, error: BaseException) -> None:
    """The rest of the rows fails. Raises where nothing was sent yet, as `send()` does."""
    is_dropped = isinstance(error, BufferExhausted) and parts.config.buffer_full == "drop"
    if not sending.has_sent and not is_dropped:
        raise error
    if not isinstance(error, Exception):
        interrupted = DeliveryFailed(f"send_table was interrupted: {error!r}", may_be_written=False)
        parts.not_accepted(interrupted)
        sending.give_up(interrupted)
        raise error
    parts.not_accepted(error)
    left = sending.give_up(error)
    if is_dropped:
        parts.counters.records_dropped += left


def send_table(
    producer: Producer, topic: str, columns: TableColumns, on_delivery: OnTableDelivery | None
) -> TableFuture:
    deadline = time.monotonic() + producer.config.max_block_ms / 1000
    queues = producer._queues_of(topic, deadline)
    greatest = columns.greatest_partition()
    if greatest is not None:
        if greatest >= len(queues.queues):
            producer._await_partitions(topic, deadline)
        checked_partition(greatest, topic, len(queues.queues))
    future = TableFuture(topic, producer._news.new_waiter, on_delivery)
    sending = new_sending(producer._parts, columns, queues, future, producer._news.new_waiter)
    for _ in sending.check():
        pass
    try:
        while (step := _advance(producer, sending)) is not Step.ENDED:
            if step is Step.FULL:
                _await_memory(producer, sending)
    except BaseException as error:
        give_up(producer._parts, sending, error)
    return future


def _advance(producer: Producer, sending: TableSending) -> Step:
    producer._check_usable()
    step = sending.advance(monotonic_ms())
    producer._driver.wake()
    return step


def _await_memory(producer: Producer, sending: TableSending) -> None:
    """Until the batch at hand was taken."""
    deadline = time.monotonic() + producer.config.max_block_ms / 1000
    producer._await_memory(lambda: _advance(producer, sending) is not Step.FULL or None, deadline)
