"""Starting a query on a machine that has much else to do.

Spark gives the Python process that plans for a streaming source ten seconds to connect, which no setting changes
(`PythonWorkerFactory.createSimpleWorker`), and then ends the query. Whoever runs a pipeline starts it again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

SLOW_START = "Python worker failed to connect back."
MAX_SLOW_STARTS = 3
SOURCES_MS = 120_000
"""For all sources of a query. One that takes longer is not waited for any more, here."""


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query once its sources are there. If it ended for any other reason, it tells whoever waits for its end."""
    for _ in range(MAX_SLOW_STARTS):
        query = start()
        if not _was_too_slow(query):
            return query
        with suppress(StreamingQueryException):
            query.awaitTermination()  # until then Spark lets no other query have its checkpoint
    return start()


def _was_too_slow(query: StreamingQuery) -> bool:
    """Only before a batch was planned: what fails later is for the test to see."""
    execution: Any = query._jsq.streamingQuery()
    try:
        execution.awaitInitialization(SOURCES_MS)
    except StreamingQueryException as error:
        return SLOW_START in str(error) and execution.lastExecution() is None
    return False
