"""The streaming queries of a pipeline, one for each sink, from their start to their end.

A shell: Spark's listener and signals put what happens into one queue, and one loop acts on it. A stop lets the running
batch end: Spark's own `stop()` would interrupt it, and leave its transactions open until the next start.
"""

from __future__ import annotations

import json
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_EVENTS: Final = 10_000
"""Reports that wait to be shown; above it the newest are dropped, for they only inform."""
LOOK_AFTER_S: Final = 0.5
STOP_POLL_S: Final = 0.1
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class QueryFailed(OncelogError):
    """A sink's query ended with an error. What it had committed stays, and the next run goes on from there."""


@dataclass(frozen=True, slots=True)
class Ended:
    query_id: str


Events = queue.Queue[Progress | Ended]


class StopRequest:
    """Counts the signals that ask to stop: the first lets batches end, another does not wait for them."""

    def __init__(self) -> None:
        self.count = 0

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


def run_queries(
    spark: SparkSession,
    pipeline: Pipeline,
    frames: Mapping[str, DataFrame],
    stop: StopRequest,
    show: Callable[[Progress], None],
    say: Callable[[str], None],
) -> None:
    """Returns when all queries have ended by themselves or were asked to stop. Raises QueryFailed."""
    events: Events = queue.Queue(MAX_EVENTS)
    listener = _listener(events)
    spark.streams.addListener(listener)
    running: dict[str, StreamingQuery] = {}
    try:
        for sink in pipeline.sinks:
            if not stop.count:
                query = _start(pipeline, sink, frames[sink.input])
                running[query.id] = query
        _follow(running, events, stop, show)
        if running:
            say("stopping: running batches end first; a second signal stops at once")
    finally:
        _stop_all(list(running.values()), stop)
        _show_the_rest(set(running), events, show)
        spark.streams.removeListener(listener)


def _start(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> StreamingQuery:
    writer = frame.writeStream.format(sink.format).outputMode(sink.output_mode).queryName(sink.name)
    writer = writer.options(**sink.options).option("checkpointLocation", pipeline.checkpoint_of(sink))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    trigger: dict[str, Any] = {pipeline.trigger.argument: pipeline.trigger.value}
    try:
        return writer.trigger(**trigger).start()
    except Exception as error:  # Spark's, and whatever a data source raises in a worker
        raise QueryFailed(f"sink {sink.name} did not start: {sentence(str(error))}") from error


def _listener(events: Events) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            with suppress(queue.Full):
                events.put_nowait(read_progress(event.progress.name, json.loads(event.progress.json)))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            with suppress(queue.Full):  # whoever hears nothing for a while looks at the queries
                events.put_nowait(Ended(str(event.id)))

    return Listener()


def _follow(
    running: dict[str, StreamingQuery], events: Events, stop: StopRequest, show: Callable[[Progress], None]
) -> None:
    """Queries that have ended leave `running`."""
    while running and not stop.count:
        event = _next(events)
        if isinstance(event, Progress):
            show(event)
            continue
        ended = [event.query_id] if event else [key for key, query in running.items() if not query.isActive]
        for query_id in ended:
            _check_failed(running.pop(query_id))


def _next(events: Events) -> Progress | Ended | None:
    try:
        return events.get(timeout=LOOK_AFTER_S)
    except queue.Empty:
        return None


def _check_failed(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise QueryFailed(f"sink {query.name}: {sentence(str(error))}")


def _show_the_rest(expected: set[str], events: Events, show: Callable[[Progress], None]) -> None:
    """Spark reports a batch some time after it."""
    while expected and (event := _next(events)) is not None:
        if isinstance(event, Progress):
            show(event)
        else:
            expected.discard(event.query_id)


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
