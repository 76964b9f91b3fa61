"""`process()`: workers as threads. Runs their steps by calling.

With one worker the caller's own thread is it. Nothing here decides what becomes of a batch.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from oncelog.client import foreign_calls
from oncelog.client.failure_run import MAX_FAILURES_IN_A_ROW
from oncelog.client.hinting import explained
from oncelog.consumer.consumer import Consumer
from oncelog.processing.ends import Ends
from oncelog.processing.job import BATCH_MS, BATCH_RECORDS, RETRIES, Job, Servers, Source
from oncelog.processing.outputs import send_all
from oncelog.processing.report import OnBatch, ProcessReport
from oncelog.processing.worker import CLOSE_AFTER_FAILURE_S, Steps, Worker
from oncelog.producer.producer import Producer

JOIN_S = 0.5
"""How often the caller looks up while its workers work, so that signals reach it."""


@explained(foreign_calls.PROCESS)
def process(
    source: Source,
    function: Callable[[Any], Any],
    target: str | None = None,
    *,
    bootstrap_servers: Servers,
    group: str,
    transactional_id: str,
    batch_records: int = BATCH_RECORDS,
    batch_ms: int = BATCH_MS,
    stop: threading.Event | None = None,
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
    """Read batches of records from `source`, have `function` make records of them, send those to `target`: each batch
    exactly once, as readers of committed records see it.

    `function` takes a list of records (with `tables=True` a `pyarrow.Table`) and returns, or yields, any number of
    values, `(key, value)` pairs, `ProducerRecord`s or `ConsumerRecord`s (a table). It may be called again with the same
    records; what it returned before is then not visible. Its results and the group's offsets are one transaction.

    Goes on until `stop` is set, or with `until_end` until all is read that was there; then it gives up, and raises, if
    no broker can be reached for `default.api.timeout.ms` of the consumer (a minute), or `max.block.ms` of the producer
    while its transactions begin. A function that raises is called `retries` times more; then the records that it cannot
    process go to the topic `dead_letter`, in the same transaction, each with a WARNING, or, if there is none, its error
    is raised: nothing of the batch is visible, and it is read again by the next call. After `max_failures_in_a_row`
    records without one that could be processed between them `TooManyFailures` is raised: then the function is to blame.
    The target may not be among the sources. Each of the `workers` is a thread, a member of the group, and has
    transactional ids of its own. Only one call at a time may use a `transactional_id`: the latest one fences those
    before it, which raise `TransactionalProducerFenced`.

    `consumer` and `producer` are further settings of theirs; `on_batch` is told of every batch that was committed.
    """
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
        workers=workers,
        consumer=consumer or {},
        producer=producer or {},
        on_batch=on_batch,
    )
    crew = _Crew(job, stop or threading.Event())
    if workers == 1:
        crew.work(0)
    else:
        crew.work_together()
    return crew.report


class _Crew:
    """The workers of one call."""

    def __init__(self, job: Job, stop: threading.Event) -> None:
        self.report = ProcessReport()
        self._job = job
        self._stop = stop
        self._ends = Ends(job.workers) if job.until_end else None
        self._has_failed = threading.Event()
        self._errors: list[BaseException] = []
        self._reporting = threading.Lock()

    def is_stopping(self) -> bool:
        return self._stop.is_set() or self._has_failed.is_set()

    def work(self, number: int) -> None:
        job = self._job
        with ExitStack() as stack:
            producers = [stack.enter_context(Producer(**settings)) for settings in job.producers_settings(number)]
            consumer = stack.enter_context(Consumer(**job.consumer_settings()))
            shell = _ThreadShell(self.is_stopping, job.reads)
            worker = Worker(number, job, consumer, producers, shell, self._ends)
            try:
                shell.run(worker.run())
            except BaseException:
                self._has_failed.set()
                consumer.close(CLOSE_AFTER_FAILURE_S)
                for producer in producers:
                    producer.close(CLOSE_AFTER_FAILURE_S)
                raise
            finally:
                with self._reporting:
                    self.report += worker.report

    def work_together(self) -> None:
        threads = [
            threading.Thread(target=self._work_apart, args=(number,), name=f"{self._job.transactional_id}-{number}")
            for number in range(self._job.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(JOIN_S)
        except BaseException:  # a signal
            self._has_failed.set()
            for thread in threads:
                thread.join()
            raise
        if self._errors:
            raise self._errors[0]

    def _work_apart(self, number: int) -> None:
        """If one fails, all end: who is left would go on with less than was asked for."""
        try:
            self.work(number)
        except BaseException as error:
            self._errors.append(error)
            self._has_failed.set()


class _ThreadShell:
    def __init__(self, is_stopping: Callable[[], bool], reads: Callable[[str], bool]) -> None:
        self.is_stopping = is_stopping
        self._reads = reads

    def run(self, steps: Steps[Any]) -> Any:
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
            except BaseException as raised:
                error = raised

    def send(self, producer: Producer, target: str | None, outputs: list[Any]) -> None:
        taken = 0 if target is None else producer.take_plain(target, outputs)
        if taken < len(outputs):
            send_all(producer.send, target, outputs[taken:], self._reads)

    def send_table(self, producer: Producer, target: str, table: Any) -> None:
        producer.send_table(target, table)

    def rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.is_stopping() and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, JOIN_S))

    def clock_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def jitter(self) -> float:
        return random.random()
