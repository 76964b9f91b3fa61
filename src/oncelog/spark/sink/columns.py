"""Arrow batches of a query as tables of records, topic by topic. Order within a topic is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from oncelog.spark.sink.errors import RowWithoutTopic


def tables_by_topic(batch: pa.RecordBatch, topic: str | None, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """`columns` are those that records are made of; without a `topic` for all, one of them names it."""
    table = pa.Table.from_batches([batch]).select([name for name in columns if name != "topic"])
    if topic is not None:
        yield topic, table
        return
    names = batch.column("topic")
    if names.null_count:
        raise RowWithoutTopic(
            "a row has no topic: its column 'topic' is null, and the query has no option 'topic'. Fill the column, or "
            "set the option"
        )
    for name in pc.unique(names):
        yield name.as_py(), table.filter(pc.equal(names, name))
