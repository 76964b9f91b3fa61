"""Spark's listener, by which a session tells of its streaming queries. A shell: its clock, and Spark's threads."""

from __future__ import annotations

import atexit
import json
import time
import weakref
from contextlib import suppress
from typing import Any, Final

from oncelog.spark.watch.queries import Queries

QUERIES: Final = Queries()
"""Of all sessions of this process."""

LEAVE_S: Final = 5.0
"""How long the end of a program waits for what Spark has still to report."""

_listened: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Sessions, with their listeners."""


def listen(spark: Any) -> None:
    """Once for each session. Spark calls from a thread of its own."""
    if spark in _listened:
        return
    listener = _listener()
    spark.streams.addListener(listener)
    _listened[spark] = listener


def _leave() -> None:
    """Before this process stops answering: Spark would print a stack of Java for each report that nobody takes. It
    reports the end of a query a moment after the query has ended."""
    for spark, listener in list(_listened.items()):
        if spark.sparkContext._jsc is None:  # stopped: all was reported
            continue
        with suppress(Exception):  # a JVM that is gone
            running = {str(query.runId) for query in spark.streams.active}
            QUERIES.await_ends(running, LEAVE_S)
            spark.streams.removeListener(listener)


atexit.register(_leave)


def _listener() -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            QUERIES.started(str(event.runId), str(event.id), event.name, time.time())

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            QUERIES.progressed(json.loads(event.progress.json), time.time())

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            QUERIES.ended(str(event.runId), event.exception)

    return Listener()
