"""Spark's listener, by which a session tells of its streaming queries. A shell: its clock, and Spark's threads."""

from __future__ import annotations

import json
import logging
import time
import weakref
from typing import Any, Final

from oncelog.spark.watch.queries import Queries

logger = logging.getLogger(__name__)

QUERIES: Final = Queries()
"""Of all sessions of this process."""

_listened: weakref.WeakSet[Any] = weakref.WeakSet()


def listen(spark: Any) -> None:
    """Once for each session. Spark calls from a thread of its own."""
    if spark in _listened:
        return
    spark.streams.addListener(_listener())
    _listened.add(spark)


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
