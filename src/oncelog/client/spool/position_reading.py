"""Reads a spool's last committed position from its partition, from the place where it was last known to lie.

To be asked once the coordinator has answered an InitProducerId of the transactional id: then every earlier transaction
of it has its marker in the log. The leader is asked for the end of its log first, which it does not tell before it is
certain (a new leader may be behind for a moment), and everything below is read. Transactions of other producers do not
matter, be they open or not.
"""

from __future__ import annotations

from typing import Final

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.metadata import NO_LEADER
from oncelog.client.network_events import Answered
from oncelog.client.sender import SenderCore
from oncelog.client.spool.asking import ASK_AGAIN_MS, Asking
from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.identity import SpoolIdentity
from oncelog.client.spool.positions import Position, PositionSearch
from oncelog.errors import NONE, KafkaError, OffsetOutOfRange, error_for_code
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic

LATEST, EARLIEST = -1, -2
FETCH_BYTES: Final = 1024 * 1024
READ_UNCOMMITTED = 0
NO_SESSION, SESSIONLESS_EPOCH = 0, -1
LAST_FETCH_BY_NAME: Final = 12


class PositionReader:
    def __init__(self, core: SenderCore, accumulator: Accumulator, identity: SpoolIdentity, hint: int | None) -> None:
        """`hint`: the offset of a position that was committed."""
        self.is_done = False
        self.is_lost = False
        """There was a position, and it is gone: somebody deleted the topic, or its records."""
        self.failure: SpoolError | None = None
        self._core = core
        self._accumulator = accumulator
        self._identity = identity
        self._hint = hint
        self._search = PositionSearch(identity)
        self._asking = Asking(core.network, core.metadata.mark_stale)
        self._end: int | None = None
        self._first: int | None = None
        self._next = 0
        self._now_ms = 0

    @property
    def found(self) -> Position | None:
        return self._search.found

    def poll(self, now_ms: int) -> int:
        """Ask what is to be asked; when to look again."""
        self._now_ms = now_ms
        self._core.metadata.want(self._identity.topic, now_ms)
        queue = queue_of(self._accumulator, self._identity)
        if self.is_done or queue is None or queue.leader == NO_LEADER or not self._asking.is_free(now_ms):
            return now_ms + ASK_AGAIN_MS
        if self._asking.is_ready(queue.leader, now_ms):
            if self._end is None or self._first is None:
                self._ask_offset(queue, LATEST if self._end is None else EARLIEST, now_ms)
            else:
                self._fetch(queue, now_ms)
        return now_ms + ASK_AGAIN_MS

    # --- where the log begins and ends ----------------------------------------------------------------------------

    def _ask_offset(self, queue: PartitionQueue, which: int, now_ms: int) -> None:
        partition = {
            "partition_index": queue.index,
            "current_leader_epoch": NO_LEADER_EPOCH,
            "timestamp": which,
        }
        body: Message = {
            "replica_id": -1,
            "isolation_level": READ_UNCOMMITTED,
            "topics": [{"name": queue.topic, "partitions": [partition]}],
            "timeout_ms": 0,
        }

        def answered(event: Answered) -> None:
            answer = event.body["topics"][0]["partitions"][0]
            if not self._is_refused(answer["error_code"]):
                self._learn(which, answer["offset"])

        self._asking.ask(queue.leader, ApiKey.LIST_OFFSETS, body, now_ms, answered, self._unsupported)

    def _learn(self, which: int, offset: int) -> None:
        if which == LATEST:
            self._end = offset
            return
        self._first = self._next = offset
        assert self._end is not None
        if self._hint is not None and self._hint >= self._end:
            self._give_up()
        else:
            self._next = max(offset, self._hint or 0)
            self._conclude_at_the_end()

    # --- reading ---------------------------------------------------------------------------------------------------

    def _fetch(self, queue: PartitionQueue, now_ms: int) -> None:
        is_by_id = queue.topic_id is not None
        partition = FetchPartition(queue.index, NO_LEADER_EPOCH, self._next, NO_LEADER_EPOCH, NO_OFFSET, FETCH_BYTES)
        version = self._core.network.version_of(queue.leader, ApiKey.FETCH)
        is_by_id = is_by_id and version > LAST_FETCH_BY_NAME
        topic = FetchTopic("" if is_by_id else queue.topic, queue.topic_id if is_by_id else None, [partition])
        request = FetchRequest(0, 0, FETCH_BYTES, READ_UNCOMMITTED, NO_SESSION, SESSIONLESS_EPOCH, [topic])
        last_version = None if is_by_id else LAST_FETCH_BY_NAME
        self._asking.ask(
            queue.leader, ApiKey.FETCH, request, now_ms, self._fetched, self._unsupported, max_version=last_version
        )

    def _fetched(self, event: Answered) -> None:
        response = event.body
        if response.error_code != NONE or not response.topics:
            self._is_refused(response.error_code)
            return
        answer: FetchedPartition = response.topics[0].partitions[0]
        if answer.error_code == OffsetOutOfRange.code:
            self._end = self._first = None  # it was cut meanwhile: look again
            self._asking.again(self._now_ms)
        elif not self._is_refused(answer.error_code):
            next_offset = self._search.read(memoryview(answer.records or b""))
            if next_offset is None:
                self._asking.again(self._now_ms)
            else:
                self._next = max(self._next, next_offset)
                self._conclude_at_the_end()

    def _conclude_at_the_end(self) -> None:
        assert self._end is not None
        assert self._first is not None
        if self._next < self._end:
            return
        if self.found is None and self._hint is not None:
            self._give_up()
        self.is_done = True

    def _give_up(self) -> None:
        self.is_lost = self.is_done = True

    # --- refusals --------------------------------------------------------------------------------------------------

    def _is_refused(self, code: int) -> bool:
        if code == NONE:
            return False
        error = error_for_code(code)
        if error.retriable or error.stale_metadata:
            self._asking.again(self._now_ms)
        else:
            self._fail(error)
        return True

    def _unsupported(self, reason: str) -> None:
        self.failure = SpoolError(f"how far the spool was committed cannot be read: {reason}")

    def _fail(self, error: KafkaError) -> None:
        self.failure = SpoolError(
            f"how far the spool was committed cannot be read from {self._identity.place}: {error}; nothing is sent"
            " before that is known"
        )


def queue_of(accumulator: Accumulator, identity: SpoolIdentity) -> PartitionQueue | None:
    topic = accumulator.topics.get(identity.topic)
    if topic is None or identity.partition >= len(topic.queues):
        return None
    return topic.queues[identity.partition]
