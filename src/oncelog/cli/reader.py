"""Reads a topic without a group: from where to where, partition by partition, leader by leader.

A partition that has no leader keeps nobody from the others: it is named once, looked for now and then, and read from
its start when it has one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from oncelog.cli.output import note
from oncelog.client.blocking import BlockingClient
from oncelog.client.leaderless import without_leader
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET, list_offsets
from oncelog.client.metadata import NO_LEADER, Node
from oncelog.errors import NONE, KafkaError, LeaderNotAvailable, OffsetOutOfRange, error_for_code
from oncelog.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES
from oncelog.records.kernel import ConsumerRecord, RecordCursor
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.schema import ZERO_UUID

RECORDS_AT_ONCE = 1_000
LEADERLESS_PAUSE_S = 0.5
LOOK_AGAIN_S = 1.0
"""How often a partition without a leader is looked for, while the others are read."""
LAST_VERSION_BY_NAME = 12
NO_SESSION, FINAL_EPOCH = 0, -1


class Start(NamedTuple):
    """An offset; a negative one counts back from the end. If it is not `exact`, the nearest offset that exists."""

    offset: int
    exact: bool = False


END = Start(-1)


class Fetching(NamedTuple):
    """What a consumer may be told of its fetches, and what a reader is told without."""

    fetch_max_wait_ms: int = 500
    """How long a fetch that finds nothing waits, and so how late --timeout is noticed at most."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 16 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024


DEFAULT_FETCHING = Fetching()


class TopicReader:
    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        partitions: Iterable[int] | None,
        isolation: IsolationLevel,
        fetching: Fetching = DEFAULT_FETCHING,
    ) -> None:
        self._client = client
        self._fetching = fetching
        self._topic = topic
        self._isolation = isolation
        chosen = partitions or [partition.index for partition in client.topic(topic).partitions]
        self._partitions = [TopicPartition(topic, index) for index in dict.fromkeys(chosen)]
        for partition in self._partitions:
            client.partition(partition)
        self._positions: dict[TopicPartition, int] = {}
        self._start = END
        self._until_the_end = False
        self._ends: dict[TopicPartition, int] = {}
        self._leaderless: dict[TopicPartition, float] = {}
        """Since when."""
        self._named: set[TopicPartition] = set()
        self._look_again_at = 0.0
        self._order = deque(self._partitions)

    def start(self, start: Start, *, until_end: bool) -> None:
        """Raises OffsetOutOfRange."""
        self._start, self._until_the_end = start, until_end
        self._place(self._led(self._partitions))

    def _place(self, partitions: list[TopicPartition]) -> None:
        """Where to begin, and to end, in partitions that have a leader (now)."""
        new = [partition for partition in partitions if partition not in self._positions]
        if not new:
            return
        first, end = self._offsets(new, EARLIEST_OFFSET), self._offsets(new, LATEST_OFFSET)
        for partition in new:
            self._positions[partition] = _position(partition, self._start, first[partition], end[partition])
            if self._until_the_end:
                self._ends[partition] = end[partition]

    def _led(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that have a leader. Raises LeaderNotAvailable if all are to be read, and one has none for long."""
        if self._leaderless and time.monotonic() >= self._look_again_at:
            self._look_again_at = time.monotonic() + LOOK_AGAIN_S
            self._client.refresh_metadata([self._topic])
        found = []
        for partition in partitions:
            if self._client.partition(partition).leader != NO_LEADER:
                self._leaderless.pop(partition, None)
                found.append(partition)
            else:
                self._miss(partition)
        return found

    def _miss(self, partition: TopicPartition) -> None:
        now = time.monotonic()
        since = self._leaderless.setdefault(partition, now)
        if self._until_the_end and now - since >= self._client.config.default_api_timeout_ms / 1000:
            raise LeaderNotAvailable(f"the end of {partition} cannot be reached: {without_leader([partition])}")
        if partition not in self._named:
            self._named.add(partition)
            note(f"{partition} has no leader; waiting for it")

    @property
    def leaderless(self) -> list[TopicPartition]:
        """Of what is to be read, those that no broker leads at the moment."""
        return sorted(self._leaderless)

    @property
    def finished(self) -> bool:
        return self._until_the_end and all(self._is_read(partition) for partition in self._partitions)

    def poll(self, answer_ms: int | None = None) -> Iterator[tuple[TopicPartition, ConsumerRecord]]:
        """What one round of fetches brings. Of a round that is not read to its end, the rest is fetched again. Brokers
        may take `answer_ms`, and `fetch.max.wait.ms` more to say that there is nothing."""
        self._order.rotate(-1)  # so that no partition is always served last
        with self._client.within(None if answer_ms is None else answer_ms + self._fetching.fetch_max_wait_ms):
            led = self._led([partition for partition in self._order if not self._is_read(partition)])
            self._place(led)
            fetched = self._client.retrying(lambda: self._fetch_all(self._led(led))) if led else []
        if not led:
            time.sleep(LEADERLESS_PAUSE_S)
        for partition, cursor in fetched:
            for record in self._until_end(partition, cursor):
                yield partition, record
                self._positions[partition] = record.offset + 1
            self._positions[partition] = max(self._positions[partition], cursor.next_offset)

    def _until_end(self, partition: TopicPartition, cursor: RecordCursor) -> Iterator[ConsumerRecord]:
        while records := cursor.take(RECORDS_AT_ONCE):
            for record in records:
                if self._until_the_end and record.offset >= self._ends[partition]:
                    return
                yield record

    def _is_read(self, partition: TopicPartition) -> bool:
        return partition in self._ends and self._positions[partition] >= self._ends[partition]

    def _fetch_all(self, partitions: list[TopicPartition]) -> list[tuple[TopicPartition, RecordCursor]]:
        by_leader = self._client.by_leader(partitions)
        found = []
        failed: KafkaError | None = None
        for node, led in by_leader.items():
            # One leader can be waited for; several are asked in turn, and none may keep the others waiting.
            for answer in self._fetch(node, led, self._fetching.fetch_max_wait_ms // len(by_leader)):
                try:
                    found.append(self._cursor(answer))
                except KafkaError as error:
                    if not error.retriable or isinstance(error, OffsetOutOfRange):
                        raise
                    failed = error
        if failed is not None and not found:
            raise failed
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
                max_bytes=self._fetching.max_partition_fetch_bytes,
            )
            for _, index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self._fetching.fetch_min_bytes,
            max_bytes=self._fetching.fetch_max_bytes,
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

    def _offsets(self, partitions: list[TopicPartition], spec: int) -> dict[TopicPartition, int]:
        listed = list_offsets(self._client, dict.fromkeys(partitions, spec), self._isolation)
        return {partition: one.offset for partition, one in listed.items()}


def _position(partition: TopicPartition, start: Start, first: int, end: int) -> int:
    if start == END:
        return end
    if start.offset < 0:
        return max(first, end + start.offset)
    if start.exact and not first <= start.offset <= end:
        raise OffsetOutOfRange(f"{partition} holds the offsets {first} to {end - 1}, not {start.offset}")
    return min(max(first, start.offset), end)
