"""Reads a topic without a group: from where to where, partition by partition, leader by leader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncelog.client.blocking import BlockingClient
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET, list_offsets
from oncelog.client.metadata import Node
from oncelog.errors import NONE, OffsetOutOfRange, error_for_code
from oncelog.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES
from oncelog.records.kernel import ConsumerRecord, RecordCursor
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.schema import ZERO_UUID

MAX_WAIT_MS = 500
"""How long a fetch that finds nothing waits, and so how late Ctrl-C or --timeout is noticed at most."""
MAX_BYTES = 16 * 1024 * 1024
MAX_PARTITION_BYTES = 1024 * 1024
RECORDS_AT_ONCE = 1_000
LAST_VERSION_BY_NAME = 12
NO_SESSION, FINAL_EPOCH = 0, -1


class Start(NamedTuple):
    """An offset; a negative one counts back from the end. If it is not `exact`, the nearest offset that exists."""

    offset: int
    exact: bool = False


END = Start(-1)


class TopicReader:
    def __init__(
        self, client: BlockingClient, topic: str, partitions: Iterable[int] | None, isolation: IsolationLevel
    ) -> None:
        self._client = client
        self._topic = topic
        self._isolation = isolation
        chosen = partitions or [partition.index for partition in client.topic(topic).partitions]
        self._partitions = [TopicPartition(topic, index) for index in dict.fromkeys(chosen)]
        for partition in self._partitions:
            client.partition(partition)
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] | None = None
        self._order = deque(self._partitions)

    def start(self, start: Start, *, until_end: bool) -> None:
        """Raises OffsetOutOfRange."""
        first, end = self._offsets(EARLIEST_OFFSET), self._offsets(LATEST_OFFSET)
        for partition in self._partitions:
            self._positions[partition] = _position(partition, start, first[partition], end[partition])
        self._ends = end if until_end else None

    @property
    def finished(self) -> bool:
        return self._ends is not None and all(
            self._positions[partition] >= end for partition, end in self._ends.items()
        )

    def poll(self) -> Iterator[tuple[TopicPartition, ConsumerRecord]]:
        """What one round of fetches brings. Of a round that is not read to its end, the rest is fetched again."""
        self._order.rotate(-1)  # so that no partition is always served last
        unread = [partition for partition in self._order if not self._is_read(partition)]
        fetched = self._client.retrying(lambda: self._fetch_all(unread))
        for partition, cursor in fetched:
            for record in self._until_end(partition, cursor):
                yield partition, record
                self._positions[partition] = record.offset + 1
            self._positions[partition] = max(self._positions[partition], cursor.next_offset)

    def _until_end(self, partition: TopicPartition, cursor: RecordCursor) -> Iterator[ConsumerRecord]:
        while records := cursor.take(RECORDS_AT_ONCE):
            for record in records:
                if self._ends is not None and record.offset >= self._ends[partition]:
                    return
                yield record

    def _is_read(self, partition: TopicPartition) -> bool:
        return self._ends is not None and self._positions[partition] >= self._ends[partition]

    def _fetch_all(self, partitions: list[TopicPartition]) -> list[tuple[TopicPartition, RecordCursor]]:
        by_leader = self._client.by_leader(partitions)
        found = []
        for node, led in by_leader.items():
            # One leader can be waited for; several are asked in turn, and none may keep the others waiting.
            for answer in self._fetch(node, led, MAX_WAIT_MS // len(by_leader)):
                found.append(self._cursor(answer))
        return found

    def _fetch(self, node: Node, partitions: list[TopicPartition], max_wait_ms: int) -> list[FetchedPartition]:
        topic = self._client.topic(self._topic)
        asked = [
            FetchPartition(
                index=index,
                current_leader_epoch=-1,
                fetch_offset=self._positions[TopicPartition(self._topic, index)],
                last_fetched_epoch=-1,
                log_start_offset=-1,
                max_bytes=MAX_PARTITION_BYTES,
            )
            for _, index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic.name, topic.topic_id, asked)],
        )
        max_version = LAST_VERSION_BY_NAME if topic.topic_id == ZERO_UUID else None
        answer = self._client.request(ApiKey.FETCH, request, node=node, max_version=max_version)
        if answer.error_code:
            raise error_for_code(answer.error_code)
        return [one for topic in answer.topics for one in topic.partitions]

    def _cursor(self, answer: FetchedPartition) -> tuple[TopicPartition, RecordCursor]:
        partition = TopicPartition(self._topic, answer.index)
        position = self._positions[partition]
        if answer.error_code == OffsetOutOfRange.code:
            raise OffsetOutOfRange(
                f"{partition} has no offset {position} any more (retention took it, or the log was cut); "
                "start again with --from-beginning"
            )
        if answer.error_code != NONE:
            raise error_for_code(answer.error_code, f"{partition}: {error_for_code(answer.error_code).message}")
        data = memoryview(b"") if answer.records is None else answer.records
        return partition, RecordCursor(
            data,
            partition.topic,
            partition.partition,
            position,
            self._isolation == IsolationLevel.READ_COMMITTED,
            answer.aborted,
            True,
            DEFAULT_MAX_DECOMPRESSED_BYTES,
        )

    def _offsets(self, spec: int) -> dict[TopicPartition, int]:
        listed = list_offsets(self._client, dict.fromkeys(self._partitions, spec), self._isolation)
        return {partition: one.offset for partition, one in listed.items()}


def _position(partition: TopicPartition, start: Start, first: int, end: int) -> int:
    if start == END:
        return end
    if start.offset < 0:
        return max(first, end + start.offset)
    if start.exact and not first <= start.offset <= end:
        raise OffsetOutOfRange(f"{partition} holds the offsets {first} to {end - 1}, not {start.offset}")
    return min(max(first, start.offset), end)
