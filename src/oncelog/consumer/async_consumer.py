"""`AsyncConsumer`: the same consumer for asyncio. No thread: the core runs in the event loop.

A consumer belongs to the loop that it is first used in, and to one task at a time; `wakeup()` alone may come from
another. Callbacks may be coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from oncelog.client import arguments as checked
from oncelog.client import foreign_calls
from oncelog.client.arguments import OffsetsInput, PartitionInput, Partitions, Topics
from oncelog.client.consumer_calls.steps import Ask, AwaitNews, Call, Callback, OnPartitions
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_errors import ConsumerClosed, ConsumerInUse, ConsumerTimedOut, WokenUp
from oncelog.client.consumer_records import OffsetAndMetadata, OffsetAndTimestamp
from oncelog.client.fetch.partitions import EARLIEST, LATEST
from oncelog.client.hinting import Hinting, with_hints
from oncelog.client.streaming import StreamingDriver
from oncelog.client.typed_settings import ConsumerSettings
from oncelog.consumer.assembly import Waker, assemble
from oncelog.consumer.face import (
    CLOSE_TIMEOUT_S,
    ConsumerFace,
    answer_of,
    cancel,
    checked_listener,
)
from oncelog.records.arrow import record_schema, table_of
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

T = TypeVar("T")


class _Bell:
    """Where the user's task waits for the core."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_woken = False
        """Somebody called `wakeup()`."""

    def ring(self) -> None:
        self._event.set()

    async def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None, *, is_wakeable: bool) -> bool:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not is_there():
            if is_wakeable and self.is_woken:
                self.is_woken = False
                raise WokenUp("wakeup() was called")
            self._event.clear()
            if deadline is None:
                await self._event.wait()
                continue
            timer = loop.call_at(deadline, self._event.set)
            try:
                await self._event.wait()
            finally:
                timer.cancel()
            if loop.time() >= deadline:
                return is_there()
        return True


@with_hints(foreign_calls.ASYNC_CONSUMER)
class AsyncConsumer(ConsumerFace, metaclass=Hinting):
    """Reads Kafka topics from asyncio, alone or as a member of a group.

        async with oncelog.AsyncConsumer("127.0.0.1:9092", group_id="billing") as consumer:
            await consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.key, record.value)

    Settings are Kafka's, with dots or underscores, as keywords or as one mapping.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self.config: ConsumerConfig = ConsumerConfig.of(
            bootstrap_servers if bootstrap_servers is not None else {}, **settings
        )
        self._bell = _Bell()
        self._waker = Waker()
        self._wake = self._waker.wake
        self._parts = assemble(self.config, self, self._bell.ring, self._wake)
        self._calls = self._parts.calls
        self._core = self._parts.core
        self._driver: StreamingDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._user: asyncio.Task[Any] | None = None
        self._is_closed = False

    # --- reading ----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records (by default `max.poll.records`), or none after `timeout` seconds; without
        a limit if that is None.

        Calling it says that what earlier calls returned is done with, and that this consumer is alive: it must be
        called within `max.poll.interval.ms`. Rebalance callbacks run in here. Raises what the group, the brokers or a
        deserializer object to; the position stays before the record that could not be read.
        """
        return await self._run(self._calls.reading.poll(checked.poll_ms(timeout), checked.limit(max_records)))

    async def read_table(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> pa.Table:
        """What was fetched, as a `pyarrow.Table`: all that waits, or `max_records` rows; empty after `timeout` seconds.
        Keys and values stay bytes: deserializers and interceptors are for single records."""
        record_schema()  # imports pyarrow: not within the timeout, and not after records were taken if there is none
        return table_of(
            await self._run(self._calls.reading.read_columns(checked.poll_ms(timeout), checked.limit(max_records)))
        )

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """One record after the other, without end: it waits for what is not written yet. Ends when the consumer is
        closed."""
        reading, progress, core = self._calls.reading, self._calls.progress, self._core
        while not self._is_closed:
            for record in await self._run(reading.next_chunk()):
                core.in_hand = record
                yield record
                if progress.is_interrupted or core.outbox:
                    break
            else:
                progress.chunk_ended()

    # --- what to read -----------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Topics,
        *,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Share these topics with the other members of the group: names, or a compiled pattern (a text that begins
        with ^ is one). Replaces an earlier subscription.

        The callbacks get this consumer and a list of partitions, and run inside `poll()`: `on_assigned` when partitions
        came, `on_revoked` before they go (commit in there what is processed), `on_lost` when they are gone already (by
        default, `on_revoked` is called then as well).
        """
        listener = checked_listener(on_assigned, on_revoked, on_lost)
        await self._run(self._calls.selection.subscribe(checked.topics(topics), listener))

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        await self._run(self._calls.selection.unsubscribe())

    async def assign(self, partitions: Iterable[PartitionInput]) -> None:
        """Read exactly these partitions, whoever else does. Replaces an earlier assignment."""
        await self._run(self._calls.selection.assign(checked.partitions(partitions)))

    async def pause(self, *partitions: Partitions) -> None:
        """Keep the partitions, and read nothing from them until `resume()`."""
        await self._run(self._calls.selection.pause(checked.these_partitions(partitions)))

    async def resume(self, *partitions: Partitions) -> None:
        await self._run(self._calls.selection.resume(checked.these_partitions(partitions)))

    async def enforce_rebalance(self) -> None:
        """Let the group share its partitions anew."""
        await self._run(self._calls.selection.enforce_rebalance())

    async def topics(self, timeout: float | None = None) -> set[str]:
        """The topics that exist, without internal ones unless `exclude.internal.topics` is false."""
        return await self._run(self._calls.selection.topics(checked.timeout_ms(timeout)))

    async def partitions_for_topic(self, topic: str, timeout: float | None = None) -> set[int] | None:
        """The partitions of a topic, such as to assign all of them; None if it does not exist. Creates no topic.

        consumer.assign([("orders", n) for n in await consumer.partitions_for_topic("orders")])
        """
        name = checked.topic_name(topic)
        return await self._run(self._calls.selection.partitions_for_topic(name, checked.timeout_ms(timeout)))

    # --- positions --------------------------------------------------------------------------------------------------

    async def seek(self, partition: PartitionInput, offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        await self._run(self._calls.positions.seek(checked.partition(partition), offset))

    async def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Read from the first record on; all assigned partitions if none is named."""
        await self._run(self._calls.positions.seek_to(EARLIEST, checked.these_or_all(partitions)))

    async def seek_to_end(self, *partitions: Partitions) -> None:
        """Read what is written from now on; all assigned partitions if none is named."""
        await self._run(self._calls.positions.seek_to(LATEST, checked.these_or_all(partitions)))

    async def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Read from the first record that is not older; all assigned partitions if none is named."""
        await self._run(
            self._calls.positions.seek_to(checked.moment_ms(timestamp_ms), checked.these_or_all(partitions))
        )

    async def position(self, partition: PartitionInput, timeout: float | None = None) -> int:
        """The offset of the next record. Waits until the group or the broker has told where reading begins."""
        return await self._run(
            self._calls.positions.position(checked.partition(partition), checked.timeout_ms(timeout))
        )

    async def beginning_offsets(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not."""
        return await self._run(
            self._calls.positions.end_offsets(
                EARLIEST, checked.these_partitions(partitions), checked.timeout_ms(timeout)
            )
        )

    async def end_offsets(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have; under `read_committed`, the first offset of the
        oldest transaction that has not ended."""
        return await self._run(
            self._calls.positions.end_offsets(LATEST, checked.these_partitions(partitions), checked.timeout_ms(timeout))
        )

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionInput, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record that is not older than its time; None if there is none."""
        specs = {
            partition: checked.moment_ms(moment)
            for partition, moment in checked.by_partition(timestamps_ms, "timestamps in milliseconds").items()
        }
        return await self._run(self._calls.positions.list_offsets(specs, checked.timeout_ms(timeout)))

    # --- offset commits ---------------------------------------------------------------------------------------------

    async def commit(self, offsets: OffsetsInput | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets for the group, and return when it has them. By default the positions: everything that was
        handed out. An offset is that of the next record to read; `commit(record)` says that this one is processed, and
        all before it. Raises CommitFailed if the partitions are another member's by now."""
        wanted = None if offsets is None else checked.offsets(offsets)
        await self._run(self._calls.commits.commit(wanted, checked.timeout_ms(timeout)))

    async def committed(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not. All assigned partitions if none is named."""
        return await self._run(
            self._calls.commits.committed(checked.these_or_all(partitions), checked.timeout_ms(timeout))
        )

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; `async with` and the first call do it as well."""
        self._check_usable()

    def wakeup(self) -> None:
        """From another task: whoever waits in this consumer gets WokenUp, or else the next one who would wait."""
        self._bell.is_woken = True
        self._bell.ring()

    async def close(self, timeout: float | None = None) -> None:
        """Commit what was handed out (with `enable.auto.commit`), give the partitions back, leave the group, end. Takes
        `timeout` seconds at most (30 by default), and so long only if there is something to commit and nobody answers;
        what was not committed then is a WARNING. Closing twice is harmless."""
        await self._close(timeout, is_failing=False)

    async def _close(self, timeout: float | None, *, is_failing: bool) -> None:
        if self._is_closed or self._driver is None:
            self._is_closed = True
            return
        timeout_s = CLOSE_TIMEOUT_S if timeout is None else checked.seconds(timeout)
        self._calls.check_no_callback("close()")
        self._check_nobody_else()
        try:
            await self._run(self._calls.close(int(timeout_s * 1000), is_failing=is_failing))
            await self._driver.join()
        except Exception:  # of a callback; the group hears that we leave all the same
            await self._driver.join()
            raise
        finally:
            self._is_closed = True
            await self._driver.close()

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(None, is_failing=error is not None)

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is not None and not self._is_closed:
            assert self._driver is not None
            warnings.warn(
                f"consumer {self.config.client_id} was not closed; its group hears of it when its session ends",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._driver.abandon)  # no more heartbeats

    # --- running calls ----------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ConsumerClosed("the consumer is closed; make a new one to read more")
        loop = asyncio.get_running_loop()
        if self._driver is None:
            self._loop = loop
            self._driver = self._waker.driver = StreamingDriver(self._core, loop, self._parts.socket_options)
            self._driver.start()
        if loop is not self._loop:
            raise RuntimeError(
                "this AsyncConsumer belongs to another event loop, the one it was first used in; make one for each loop"
            )

    def _check_nobody_else(self) -> None:
        if self._user not in (None, asyncio.current_task()):
            raise ConsumerInUse("another task uses this consumer; give each task its own")

    async def _run(self, call: Call[T]) -> T:
        self._check_usable()
        self._check_nobody_else()
        outer, self._user = self._user, asyncio.current_task()
        try:
            result: Any = None
            error: BaseException | None = None
            while True:
                try:
                    step = call.send(result) if error is None else call.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                result = error = None
                try:
                    result = await self._perform(step)
                except BaseException as raised:
                    error = raised
        finally:
            self._user = outer

    async def _perform(self, step: Ask | AwaitNews | Callback) -> Any:
        if isinstance(step, Callback):
            told = step.function(*step.arguments)
            return await told if inspect.isawaitable(told) else told
        if isinstance(step, Ask):
            return await self._ask(step)
        seen, core = step.seen, self._core
        timeout_s = None if step.deadline_ms is None else (step.deadline_ms - self._parts.clock()) / 1000
        return await self._bell.wait_for(lambda: core.arrivals != seen, timeout_s, is_wakeable=step.is_wakeable)

    async def _ask(self, ask: Ask) -> Any:
        answers: list[Any] = []
        pending: list[Any] = []

        def done(answer: Any) -> None:
            answers.append(answer)
            self._bell.ring()

        core = self._core
        core.submit(lambda now_ms: pending.append(ask.command(now_ms, done)))
        self._wake()
        timeout_ms = self.config.default_api_timeout_ms if ask.timeout_ms is None else ask.timeout_ms

        def has_ended() -> bool:
            return bool(answers) or core.fatal is not None

        if not await self._bell.wait_for(has_ended, timeout_ms / 1000, is_wakeable=ask.is_wakeable):
            core.submit(lambda _: cancel(pending))
            raise ConsumerTimedOut(f"no answer within {timeout_ms} ms: {self._parts.why_silent(ask)}")
        return answer_of(answers, core.fatal)
