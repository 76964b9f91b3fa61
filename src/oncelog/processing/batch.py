"""A batch: records that were read together, are transformed together, and become visible together.

Knows which offsets a batch covers, so that they can be committed with its results, or gone back to without them. A
batch is either a list of records or a `pyarrow.Table`; whoever processes it need not care which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_FIELDS = frozenset(
    {"topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestamp_ms", "leader_epoch"}
)
"""What a record has, and neither a list of them nor a table."""


@dataclass(frozen=True, slots=True)
class Batch:
    content: Any
    """What the user's function gets: a list of records, or a table."""
    size: int
    firsts: dict[TopicPartition, int]
    """Where to go back to if nothing comes of it."""
    nexts: dict[TopicPartition, OffsetAndMetadata]
    """What to commit with its results."""
    reader: GroupMetadata
    """Who read it. The group's coordinator refuses the offsets of one who was put out of the group since."""

    def joined(self, more: Batch) -> Batch:
        """With what was read right after it, by the same reader."""
        content = self.content + more.content if isinstance(self.content, list) else _concatenated(self, more)
        firsts, nexts = {**more.firsts, **self.firsts}, {**self.nexts, **more.nexts}
        return Batch(content, self.size + more.size, firsts, nexts, more.reader)

    def singles(self) -> Iterator[Any]:
        """Its records one by one, in the form of its content."""
        if isinstance(self.content, list):
            return ([record] for record in self.content)
        return (self.content.slice(row, 1) for row in range(self.size))


def batch_of_records(records: list[ConsumerRecord], reader: GroupMetadata) -> Batch:
    firsts: dict[TopicPartition, int] = {}
    nexts: dict[TopicPartition, OffsetAndMetadata] = {}
    for begin, end in _runs(records):
        partition = TopicPartition(records[begin].topic, records[begin].partition)
        last = records[end - 1]
        firsts.setdefault(partition, records[begin].offset)
        nexts[partition] = OffsetAndMetadata(last.offset + 1, "", last.leader_epoch)
    return Batch(records, len(records), firsts, nexts, reader)


def _runs(records: Sequence[ConsumerRecord]) -> Iterator[tuple[int, int]]:
    """Where the records of one partition begin and end: they come in few runs."""
    begin, topic, partition = 0, None, None
    for index, record in enumerate(records):
        if record.partition != partition or record.topic != topic:
            if index:
                yield begin, index
            begin, topic, partition = index, record.topic, record.partition
    if records:
        yield begin, len(records)


def batch_of_table(table: pa.Table, reader: GroupMetadata) -> Batch:
    """Of a table as `read_table` makes it: each of its chunks is of one partition, in order."""
    firsts: dict[TopicPartition, int] = {}
    nexts: dict[TopicPartition, OffsetAndMetadata] = {}
    for chunk in table.select(["topic", "partition", "offset"]).to_batches():
        if chunk.num_rows:
            topics, partitions, offsets = chunk.columns
            partition = TopicPartition(topics[0].as_py(), partitions[0].as_py())
            firsts.setdefault(partition, offsets[0].as_py())
            nexts[partition] = OffsetAndMetadata(offsets[-1].as_py() + 1, "", NO_LEADER_EPOCH)
    return Batch(table, table.num_rows, firsts, nexts, reader)


def _concatenated(one: Batch, other: Batch) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([one.content, other.content])


def hint_at_batches(error: AttributeError, content: Any) -> str | None:
    """For a function that was written for one record, and is called with many."""
    if error.obj is not content or error.name not in _FIELDS:
        return None
    if isinstance(content, list):
        return f"the function is called with a list of records; write `for record in records: ... record.{error.name}`"
    return (
        f'with tables=True the function is called with a pyarrow.Table; its columns are such as table["{error.name}"]'
    )
