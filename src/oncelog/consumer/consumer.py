"""`Consumer`: the consumer for threads. A thin shell: a background thread runs the core, the user's runs the calls.

One thread at a time uses a consumer; `wakeup()` alone may come from another. The two sides meet in the inbox, in the
outbox, and in commands that the background thread executes in order. Nothing here decides what is read.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
from oncelog.client.hinting import Hinting, explained_poll, with_hints
from oncelog.client.selecting import SelectingDriver
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

JOIN_GRACE_S = 5.0  # how long the thread may take to end after it was told to give up


class _Bell:
    """Where the user's thread waits for the core's."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_awaited = False
        self.is_woken = False
        """Somebody called `wakeup()`."""

    def ring(self) -> None:
        if self._is_awaited:
            with self._condition:
                self._condition.notify_all()

    def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None, *, is_wakeable: bool) -> bool:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._is_awaited = True
            try:
                while not is_there():
                    if is_wakeable and self.is_woken:
                        self.is_woken = False
                        raise WokenUp("wakeup() was called")
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._condition.wait(left)
            finally:
                self._is_awaited = False
        return True


@with_hints(foreign_calls.CONSUMER)
class Consumer(ConsumerFace, metaclass=Hinting):
    """Reads Kafka topics, alone or as a member of a group.

        with oncelog.Consumer("127.0.0.1:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
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
        waker = Waker()
        self._wake = waker.wake
        self._parts = assemble(self.config, self, self._bell.ring, self._wake)
        self._calls = self._parts.calls
        self._core = self._parts.core
        self._user = threading.RLock()
        self._process = os.getpid()
        self._is_closed = False
        self._driver = waker.driver = SelectingDriver(self._core, self._parts.socket_options)
        name = f"{self.config.client_id}-consumer"
        self._thread = threading.Thread(target=self._driver.run, name=name, daemon=True)
        self._thread.start()

    # --- reading ----------------------------------------------------------------------------------------------------

    @explained_poll(foreign_calls.POLL)
    def poll(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records (by default `max.poll.records`), or none after `timeout` seconds; without
        a limit if that is None.

        Calling it says that what earlier calls returned is done with, and that this consumer is alive: it must be
        called within `max.poll.interval.ms`. Rebalance callbacks run in here. Raises what the group, the brokers or a
        deserializer object to; the position stays before the record that could not be read.
        """
        return self._run(self._calls.reading.poll(checked.poll_ms(timeout), checked.limit(max_records)))

    def read_table(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> pa.Table:
        """What was fetched, as a `pyarrow.Table`: all that waits, or `max_records` rows; empty after `timeout` seconds.
        Keys and values stay bytes: deserializers and interceptors are for single records."""
        record_schema()  # imports pyarrow: not within the timeout, and not after records were taken if there is none
        return table_of(
            self._run(self._calls.reading.read_columns(checked.poll_ms(timeout), checked.limit(max_records)))
        )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """One record after the other, without end: it waits for what is not written yet. Ends when the consumer is
        closed."""
        reading, progress, core = self._calls.reading, self._calls.progress, self._core
        while not self._is_closed:
            for record in self._run(reading.next_chunk()):
                core.in_hand = record
                yield record
                if progress.is_interrupted or core.outbox:
                    break
            else:
                progress.chunk_ended()

    # --- what to read -----------------------------------------------------------------------------------------------

    def subscribe(
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
        self._run(self._calls.selection.subscribe(checked.topics(topics), listener))

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        self._run(self._calls.selection.unsubscribe())

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, whoever else does. Replaces an earlier assignment."""
        self._run(self._calls.selection.assign(checked.partitions(partitions)))

    def pause(self, *partitions: Partitions) -> None:
        """Keep the partitions, and read nothing from them until `resume()`."""
        self._run(self._calls.selection.pause(checked.these_partitions(partitions)))

    def resume(self, *partitions: Partitions) -> None:
        self._run(self._calls.selection.resume(checked.these_partitions(partitions)))

    def enforce_rebalance(self) -> None:
        """Let the group share its partitions anew."""
        self._run(self._calls.selection.enforce_rebalance())

    def topics(self, timeout: float | None = None) -> set[str]:
        """The topics that exist, without internal ones unless `exclude.internal.topics` is false."""
        return self._run(self._calls.selection.topics(checked.timeout_ms(timeout)))

    def partitions_for_topic(self, topic: str, timeout: float | None = None) -> set[int] | None:
        """The partitions of a topic, such as to assign all of them; None if it does not exist. Creates no topic.

        consumer.assign([("orders", n) for n in consumer.partitions_for_topic("orders")])
        """
        name = checked.topic_name(topic)
        return self._run(self._calls.selection.partitions_for_topic(name, checked.timeout_ms(timeout)))

    # --- positions --------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionInput, offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        self._run(self._calls.positions.seek(checked.partition(partition), offset))

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Read from the first record on; all assigned partitions if none is named."""
        self._run(self._calls.positions.seek_to(EARLIEST, checked.these_or_all(partitions)))

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Read what is written from now on; all assigned partitions if none is named."""
        self._run(self._calls.positions.seek_to(LATEST, checked.these_or_all(partitions)))

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: Partitions) -> None:
        """Read from the first record that is not older; all assigned partitions if none is named."""
        self._run(self._calls.positions.seek_to(checked.moment_ms(timestamp_ms), checked.these_or_all(partitions)))

    def position(self, partition: PartitionInput, timeout: float | None = None) -> int:
        """The offset of the next record. Waits until the group or the broker has told where reading begins."""
        return self._run(self._calls.positions.position(checked.partition(partition), checked.timeout_ms(timeout)))

    def beginning_offsets(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not."""
        return self._run(
            self._calls.positions.end_offsets(
                EARLIEST, checked.these_partitions(partitions), checked.timeout_ms(timeout)
            )
        )

    def end_offsets(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have; under `read_committed`, the first offset of the
        oldest transaction that has not ended."""
        return self._run(
            self._calls.positions.end_offsets(LATEST, checked.these_partitions(partitions), checked.timeout_ms(timeout))
        )

    def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionInput, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record that is not older than its time; None if there is none."""
        specs = {
            partition: checked.moment_ms(moment)
            for partition, moment in checked.by_partition(timestamps_ms, "timestamps in milliseconds").items()
        }
        return self._run(self._calls.positions.list_offsets(specs, checked.timeout_ms(timeout)))

    # --- offset commits ---------------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsInput | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets for the group, and return when it has them. By default the positions: everything that was
        handed out. An offset is that of the next record to read; `commit(record)` says that this one is processed, and
        all before it. Raises CommitFailed if the partitions are another member's by now."""
        wanted = None if offsets is None else checked.offsets(offsets)
        self._run(self._calls.commits.commit(wanted, checked.timeout_ms(timeout)))

    def committed(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not. All assigned partitions if none is named."""
        return self._run(self._calls.commits.committed(checked.these_or_all(partitions), checked.timeout_ms(timeout)))

    # --- life -------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """From any thread: whoever waits in this consumer gets WokenUp, or else the next one who would wait."""
        self._bell.is_woken = True
        self._bell.ring()

    def close(self, timeout: float | None = None) -> None:
        """Commit what was handed out (with `enable.auto.commit`), give the partitions back, leave the group, end. Takes
        `timeout` seconds at most (30 by default), and so long only if there is something to commit and nobody answers;
        what was not committed then is a WARNING. Closing twice is harmless."""
        self._close(timeout, is_failing=False)

    def _close(self, timeout: float | None, *, is_failing: bool) -> None:
        if self._is_closed or os.getpid() != self._process:
            self._is_closed = True
            return
        timeout_s = CLOSE_TIMEOUT_S if timeout is None else checked.seconds(timeout)
        self._calls.check_no_callback("close()")
        with self._used():
            try:
                self._run(self._calls.close(int(timeout_s * 1000), is_failing=is_failing))
            except BaseException as error:
                if not isinstance(error, Exception):  # Ctrl-C: whoever closes does not want to wait any more
                    self._driver.close()
                raise
            finally:
                self._is_closed = True
                self._thread.join(timeout_s + JOIN_GRACE_S)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(None, is_failing=error is not None)

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is None or self._is_closed:  # it was never made, or all is well
            return
        warnings.warn(
            f"consumer {self.config.client_id} was not closed; its group hears of it when its session ends",
            ResourceWarning,
            source=self,
            stacklevel=1,
        )
        if os.getpid() == self._process:
            self._driver.close()

    # --- running calls ----------------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise ConsumerClosed(
                "this consumer was made before a fork and belongs to the parent process; make a new one"
            )
        if self._is_closed:
            raise ConsumerClosed("the consumer is closed; make a new one to read more")

    def _run(self, call: Call[T]) -> T:
        self._check_usable()
        with self._used():
            result: Any = None
            error: BaseException | None = None
            while True:
                try:
                    step = call.send(result) if error is None else call.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                result = error = None
                try:
                    result = self._perform(step)
                except BaseException as raised:
                    error = raised

    @contextmanager
    def _used(self) -> Iterator[None]:
        """By this thread and no other; a callback of the user's may use it meanwhile."""
        if not self._user.acquire(blocking=False):
            raise ConsumerInUse("another thread uses this consumer; give each thread its own")
        try:
            yield
        finally:
            self._user.release()

    def _perform(self, step: Ask | AwaitNews | Callback) -> Any:
        if isinstance(step, Callback):
            return step.function(*step.arguments)
        if isinstance(step, Ask):
            return self._ask(step)
        seen, core = step.seen, self._core
        timeout_s = None if step.deadline_ms is None else (step.deadline_ms - self._parts.clock()) / 1000
        return self._bell.wait_for(lambda: core.arrivals != seen, timeout_s, is_wakeable=step.is_wakeable)

    def _ask(self, ask: Ask) -> Any:
        answers: list[Any] = []
        pending: list[Any] = []

        def done(answer: Any) -> None:
            answers.append(answer)
            self._bell.ring()

        self._core.submit(lambda now_ms: pending.append(ask.command(now_ms, done)))
        self._wake()
        core = self._core
        timeout_ms = self.config.default_api_timeout_ms if ask.timeout_ms is None else ask.timeout_ms

        def has_ended() -> bool:
            return bool(answers) or core.fatal is not None

        if not self._bell.wait_for(has_ended, timeout_ms / 1000, is_wakeable=ask.is_wakeable):
            self._core.submit(lambda _: cancel(pending))
            raise ConsumerTimedOut(f"no answer within {timeout_ms} ms: {self._parts.why_silent(ask)}")
        return answer_of(answers, core.fatal)
