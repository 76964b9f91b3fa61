"""How much a consumer has left to read of a partition, without asking anyone: the records that it has fetched and not
read, as many as its user would be shown, and every offset behind them, of which nobody knows more yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncelog.client.fetch.inbox import FetchedData
from oncelog.errors import KafkaError
from oncelog.records import kernel
from oncelog.records.model import BatchHeader
from oncelog.records.remaining import remaining_records
from oncelog.types import IsolationLevel


def left_to_read(held: Iterable[FetchedData], position: int, end: int, isolation: IsolationLevel) -> int:
    """From `position` up to `end`. `held` is what was fetched of the partition and not read to its end, in order."""
    count = 0
    for fetched in held:
        if fetched.fetch_offset > position:  # what lies between is in the user's hands, and not done with
            count += min(fetched.fetch_offset, end) - position
            position = fetched.fetch_offset
        if position >= end:
            return count
        batches = list(_batches(fetched.data))
        try:
            count += remaining_records(batches, fetched.aborted, position, end, isolation)
        except KafkaError:
            break  # whoever reads it hears what is wrong
        if batches:
            position = max(position, batches[-1][0].next_offset)
    return count + max(0, end - position)


def _batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    headers, _ = kernel.scan(data, 0, len(data), False)
    start = 0
    for header in headers:
        yield header, data[start : start + header.size_bytes]
        start += header.size_bytes
