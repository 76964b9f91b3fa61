"""Tables of a consumer as batches of Spark's: the same memory, other names and units.

Only timestamps are computed (Spark counts microseconds); what is the same in every row is made once and sliced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa  # type: ignore[import-untyped]

from oncelog.records.kernel import ConsumerRecord
from oncelog.spark.source.schema import HEADERS, TIMESTAMPS, arrow_schema
from oncelog.types import TopicPartition

MAX_ROWS = 65_536
"""Of one batch: more gain nothing, and Spark holds a batch in memory as a whole."""

MAX_CONSTANTS = 64
"""So many repeated columns are kept."""


class SparkBatches:
    """Of one partition's records, whose timestamps are of one type."""

    def __init__(self, partition: TopicPartition, timestamp_type: int, *, include_headers: bool) -> None:
        self._partition = partition
        self._timestamp_type = timestamp_type
        self._schema = arrow_schema(include_headers)
        self._include_headers = include_headers

    def of(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for chunk in table.to_batches(max_chunksize=MAX_ROWS):
            yield self._batch(chunk)

    def _batch(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        rows = chunk.num_rows
        topic, partition = self._partition
        columns = [
            chunk.column("key"),
            chunk.column("value"),
            _repeated_text(topic).slice(0, rows),
            _repeated_number(partition).slice(0, rows),
            chunk.column("offset"),
            chunk.column("timestamp").cast(TIMESTAMPS, safe=False),
            _repeated_number(self._timestamp_type).slice(0, rows),
        ]
        if self._include_headers:
            columns.append(_headers(chunk.column("headers")))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def of_record(self, record: ConsumerRecord) -> pa.RecordBatch:
        row = {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": self._timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        return pa.RecordBatch.from_pylist([row], schema=self._schema)


def _headers(headers: pa.ListArray) -> pa.ListArray:
    """Spark has null where a record has no headers."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    typed = headers.cast(HEADERS)
    return pc.if_else(pc.equal(pc.list_value_length(typed), 0), pa.scalar(None, HEADERS), typed)


@lru_cache(MAX_CONSTANTS)
def _repeated_text(text: str) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), MAX_ROWS)


@lru_cache(MAX_CONSTANTS)
def _repeated_number(number: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), MAX_ROWS)
