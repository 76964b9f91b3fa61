"""`process_async()`: the same for asyncio. Workers are tasks of one loop, and so are their commits."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from oncelog.client import foreign_calls
from oncelog.client.failure_run import MAX_FAILURES_IN_A_ROW
from oncelog.client.hinting import explained
from oncelog.consumer.async_consumer import AsyncConsumer
from oncelog.processing.ends import Ends
from oncelog.processing.job import BATCH_MS, BATCH_RECORDS, RETRIES, Job, Servers, Source
from oncelog.processing.outputs import send_all
from oncelog.processing.report import OnBatch, ProcessReport
from oncelog.processing.worker import CLOSE_AFTER_FAILURE_S, Steps, Worker
from oncelog.producer.async_producer import AsyncProducer

SENT_AT_ONCE = 5_000
"""So many outputs are sent before their results are awaited: a loop must not fill the line of a producer."""


@explained(foreign_calls.PROCESS)
async def process_async(
    source: Source,
    function: Callable[[Any], Any],
    target: str | None = None,
    *,
    bootstrap_servers: Servers,
    group: str,
    transactional_id: str,
    batch_records: int = BATCH_RECORDS,
    batch_ms: int = BATCH_MS,
    stop: asyncio.Event | None = None,
    until_end: bool = False,
    tables: bool = False,
    dead_letter: str | None = None,
    retries: int = RETRIES,
    max_failures_in_a_row: int = MAX_FAILURES_IN_A_ROW,
    workers: int = 1,
    consumer: Mapping[str, Any] | None = None,
    producer: Mapping[str, Any] | None = None,
    on_batch: OnBatch | None = None,
) -> ProcessReport:
    """As `process()`, for asyncio. `function` and `on_batch` may be coroutine functions, `stop` is an `asyncio.Event`.
    A task that is cancelled ends its batch, leaves the group, and closes its clients."""
    job = Job(
        source=source,
        function=function,
        target=target,
        servers=bootstrap_servers,
        group=group,
        transactional_id=transactional_id,
        batch_records=batch_records,
        batch_ms=batch_ms,
        until_end=until_end,
        tables=tables,
        dead_letter=dead_letter,
        retries=retries,
        max_failures_in_a_row=max_failures_in_a_row,
        is_async=True,
        workers=workers,
        consumer=consumer or {},
        producer=producer or {},
        on_batch=on_batch,
    )
    crew = _Crew(job, stop)
    await crew.work_together()
    return crew.report


class _Crew:
    """The workers of one call."""

    def __init__(self, job: Job, stop: asyncio.Event | None) -> None:
        self.report = ProcessReport()
        self._job = job
        self._stop = stop
        self._ends = Ends(job.workers) if job.until_end else None
        self._has_failed = False

    def is_stopping(self) -> bool:
        return self._has_failed or (self._stop is not None and self._stop.is_set())

    async def work_together(self) -> None:
        workers = [asyncio.ensure_future(self._work(number)) for number in range(self._job.workers)]
        try:
            results = await asyncio.gather(*workers, return_exceptions=True)
        except BaseException:  # cancelled, and the workers with it
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _work(self, number: int) -> None:
        job = self._job
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            producers = [await enter(AsyncProducer(**settings)) for settings in job.producers_settings(number)]
            consumer = await enter(AsyncConsumer(**job.consumer_settings()))
            shell = _TaskShell(self.is_stopping, job.reads)
            worker = Worker(number, job, consumer, producers, shell, self._ends)
            try:
                await shell.run(worker.run())
            except BaseException:  # if one fails, all end: who is left would go on with less than was asked for
                self._has_failed = True
                await consumer.close(CLOSE_AFTER_FAILURE_S)
                for producer in producers:
                    await producer.close(CLOSE_AFTER_FAILURE_S)
                raise
            finally:
                self.report += worker.report


class _TaskShell:
    def __init__(self, is_stopping: Callable[[], bool], reads: Callable[[str], bool]) -> None:
        self.is_stopping = is_stopping
        self._reads = reads

    async def run(self, steps: Steps[Any]) -> Any:
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result = error = None
            try:
                result = step()
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as raised:
                error = raised

    async def send(self, producer: AsyncProducer, target: str | None, outputs: list[Any]) -> None:
        def send(*arguments: Any) -> None:
            _hear(producer.send(*arguments))

        for begin in range(0, len(outputs), SENT_AT_ONCE):
            if begin:
                await producer.flush()
            send_all(send, target, outputs[begin : begin + SENT_AT_ONCE], self._reads)

    async def send_table(self, producer: AsyncProducer, target: str, table: Any) -> None:
        _hear(producer.send_table(target, table))

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def clock_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def jitter(self) -> float:
        return random.random()


def _hear(future: Any) -> None:
    """What becomes of a record is heard from its transaction."""
    if isinstance(future, asyncio.Future):
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
