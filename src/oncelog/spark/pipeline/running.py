"""The streaming queries of a pipeline, one for each sink, from their start to their end.

A shell: Spark's listener and signals put what happens into one queue, and one loop acts on it. A stop lets the running
batch end: Spark's own `stop()` would interrupt it, and leave its transactions open until the next start.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.errors import OncelogError
from oncelog.spark.pipeline.progress import Progress, read_progress
from oncelog.spark.pipeline.sql_errors import sentence
from oncelog.spark.pipeline.values import Pipeline, Sink
from oncelog.spark.watch.queries import ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_EVENTS: Final = 10_000
"""Reports that wait to be shown; above it the newest are dropped, for they only inform."""
LOOK_AFTER_S: Final = 0.5
QUIET_LOOKS: Final = 20
"""How often nothing may be heard at the end before the last reports are given up."""
STOP_POLL_S: Final = 0.1
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
SIGNALLED: Final = 128
"""A process that a signal ended has this and the signal's number for an exit code, as shells have it."""


class QueryFailed(OncelogError):
    """A sink's query ended with an error. What it had committed stays, and the next run goes on from there."""


@dataclass(frozen=True, slots=True)
class Event:
    """Of a query: what Spark reports of a batch, or None when the query has ended."""

    query_id: str
    report: str | None


Show = Callable[[Progress], None]


class StoppedEarly(BaseException):
    """A signal came before there was a query to be let end."""


class StopRequest:
    """Counts the signals that ask to stop: the first lets batches end, another does not wait for them. Before there are
    any, the first raises StoppedEarly wherever the program is, and so does not wait either. One more than that, and the
    process ends: Spark may be stopping, or never come up."""

    def __init__(self) -> None:
        self.count = 0
        self.has_queries = False
        """Batches may be running, or have run."""

    @contextmanager
    def on_signals(self) -> Iterator[StopRequest]:
        before = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > (2 if self.has_queries else 1):
            os._exit(SIGNALLED + number)
        if not self.has_queries:
            raise StoppedEarly


def run_queries(
    spark: SparkSession,
    pipeline: Pipeline,
    frames: Mapping[str, DataFrame],
    stop: StopRequest,
    show: Show,
    say: Callable[[str], None],
) -> None:
    """Returns when all queries have ended by themselves or were asked to stop. Raises QueryFailed."""
    stop.has_queries = True
    queries = _Queries(show)
    listener = _listener(queries.put)
    spark.streams.addListener(listener)
    try:
        for sink in pipeline.sinks:
            if not stop.count:
                queries.add(sink.name, _start(pipeline, sink, frames[sink.input]))
        queries.follow(stop)
        if queries.running:
            say("stopping: running batches end first; a second signal does not wait for them, a third for nothing")
    finally:
        stopped = list(queries.running.values())
        _stop_all(stopped, stop)
        queries.show_the_rest()
        spark.streams.removeListener(listener)
    for query in stopped:
        queries.check(query)


def _start(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> StreamingQuery:
    if sink.type == "files":
        frame = _counted(frame)
    writer = frame.writeStream.format(sink.format).outputMode(sink.output_mode).options(**sink.options)
    writer = writer.queryName(sink.name).option("checkpointLocation", pipeline.checkpoint_of(sink))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    trigger: dict[str, Any] = {pipeline.trigger.argument: pipeline.trigger.value}
    try:
        return writer.trigger(**trigger).start()
    except Exception as error:  # Spark's, and whatever a data source raises in a worker
        raise QueryFailed(f"sink {sink.name} did not start: {sentence(str(error))}") from error


def _counted(frame: DataFrame) -> DataFrame:
    """Spark's file sink is the one that does not count the rows that it writes."""
    from pyspark.sql import functions

    return frame.observe(ROWS, functions.count(functions.lit(1)).alias("rows"))


class _Queries:
    """Those that have not ended, by id, and what Spark has reported of them. Spark's threads only put events."""

    def __init__(self, show: Show) -> None:
        self.running: dict[str, StreamingQuery] = {}
        self._names: dict[str, str] = {}
        self._reporting: set[str] = set()
        self._events: queue.Queue[Event] = queue.Queue(MAX_EVENTS)
        self._show = show

    def put(self, event: Event) -> None:
        with suppress(queue.Full):  # whoever hears nothing for a while looks at the queries
            self._events.put_nowait(event)

    def add(self, name: str, query: StreamingQuery) -> None:
        self.running[query.id] = query
        self._names[query.id] = name
        self._reporting.add(query.id)

    def follow(self, stop: StopRequest) -> None:
        """Until all have ended, or are to stop. Raises QueryFailed."""
        while self.running and not stop.count:
            event = self._next()
            if event is None:
                ended = [query_id for query_id, query in self.running.items() if not query.isActive]
            else:
                ended = [event.query_id] if event.report is None else []
            for query_id in ended:
                query = self.running.pop(query_id, None)
                if query is not None:
                    self.check(query)

    def show_the_rest(self) -> None:
        """Spark reports a batch, and the end of a query, some time after it."""
        for _ in range(QUIET_LOOKS):
            while self._reporting and self._next() is not None:
                pass

    def check(self, query: StreamingQuery) -> None:
        """Raises QueryFailed."""
        error = query.exception()
        if error is not None:
            raise QueryFailed(f"sink {self._names[query.id]}: {sentence(str(error))}")

    def _next(self) -> Event | None:
        try:
            event = self._events.get(timeout=LOOK_AFTER_S)
        except queue.Empty:
            return None
        if event.report is None:
            self._reporting.discard(event.query_id)
        else:
            self._show(read_progress(self._names[event.query_id], json.loads(event.report)))
        return event


def _listener(put: Callable[[Event], None]) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            put(Event(str(event.progress.id), event.progress.json))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            put(Event(str(event.id), None))

    return Listener()


# --- stopping ---------------------------------------------------------------------------------------------------------


def _stop_all(queries: Sequence[StreamingQuery], stop: StopRequest) -> None:
    asked = stop.count
    for query in queries:
        _let_no_batch_begin(query)
    for query in queries:
        time.sleep(STOP_POLL_S)  # a batch that was about to begin has begun
        while stop.count <= asked and query.status["isTriggerActive"]:
            time.sleep(STOP_POLL_S)
        query.stop()


def _let_no_batch_begin(query: StreamingQuery) -> None:
    """Spark's loop looks at the query's state before each batch, and ends by itself once that is TERMINATED."""
    execution: Any = query._jsq.streamingQuery()
    state = execution.state()
    package = state.get().getClass().getPackageName()
    loader = execution.getClass().getClassLoader()
    terminated = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
    state.set(terminated)
