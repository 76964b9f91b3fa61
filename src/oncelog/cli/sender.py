"""Sends batches so that each record is stored once: one numbered batch in flight per partition, until acknowledged.

A batch gets its producer id, epoch and sequence number once and keeps them on every retry, so that a broker which has
it already recognises it. The full producer, with many batches in flight, is another room's; this one serves the command
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from oncelog.client.blocking import BlockingClient
from oncelog.client.connection import ProtocolViolation
from oncelog.errors import (
    NONE,
    DuplicateSequenceNumber,
    KafkaError,
    MessageTooLarge,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
    error_for_code,
)
from oncelog.records.batch import build_batch
from oncelog.types import TopicPartition, advance_sequence
from oncelog.wire.api import ApiKey
from oncelog.wire.produce import ProducedPartition, ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.schema import ZERO_UUID

ACKS_ALL = -1
LAST_VERSION_BY_NAME = 12
"""Later versions of Produce name topics by their ids."""

RecordInput = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""(timestamp_ms, key, value, headers)"""


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Records that have their place in the sequence. Only a split makes others of them, with the same numbers."""

    records: Sequence[RecordInput]
    sequence: int

    def halves(self) -> tuple[_Numbered, _Numbered]:
        middle = len(self.records) // 2
        first = _Numbered(self.records[:middle], self.sequence)
        return first, _Numbered(self.records[middle:], advance_sequence(self.sequence, middle))


class ExactlyOnceSender:
    def __init__(self, client: BlockingClient, topic: str, *, codec: int) -> None:
        self._client = client
        self._topic = topic
        self._codec = codec
        self._next_sequence: dict[int, int] = {}
        self._producer_id, self._producer_epoch = client.retrying(self._init_producer_id)
        self.last_offsets: dict[int, int] = {}
        """Of each partition written to, the offset of the last record. Absent if only the broker knows it."""

    def _init_producer_id(self) -> tuple[int, int]:
        request = {"transactional_id": None, "transaction_timeout_ms": 0}
        answer = self._client.request(ApiKey.INIT_PRODUCER_ID, request)
        if answer["error_code"]:
            raise error_for_code(answer["error_code"])
        return answer["producer_id"], answer["producer_epoch"]

    def send(self, records: Mapping[int, Sequence[RecordInput]]) -> None:
        """Return once all records, given by partition, are stored. Raises what no retry can mend."""
        queues: dict[int, list[_Numbered]] = {}
        for partition, some in records.items():
            sequence = self._next_sequence.get(partition, 0)
            self._next_sequence[partition] = advance_sequence(sequence, len(some))
            queues[partition] = [_Numbered(some, sequence)]
        while queues:
            self._client.retrying(partial(self._send_heads, queues))
            queues = {partition: queue for partition, queue in queues.items() if queue}

    def _send_heads(self, queues: dict[int, list[_Numbered]]) -> None:
        """One attempt for the first batch of every queue; the worst of the errors is raised after all are answered."""
        waiting = [TopicPartition(self._topic, index) for index, queue in queues.items() if queue]
        errors: list[KafkaError] = []
        for node, partitions in self._client.by_leader(waiting).items():
            heads = {index: queues[index][0] for _, index in partitions}
            request, max_version = self._request(heads)
            answer = self._client.request(ApiKey.PRODUCE, request, node=node, max_version=max_version)
            results = {result.index: result for topic in answer.topics for result in topic.partitions}
            if results.keys() != heads.keys():
                raise ProtocolViolation(f"{node} answered for partitions {sorted(results)}, not {sorted(heads)}")
            for index, result in results.items():
                errors += self._settle(queues[index], result)
        if errors:
            raise min(errors, key=lambda error: error.retriable)

    def _request(self, batches: dict[int, _Numbered]) -> tuple[ProduceRequest, int | None]:
        topic = self._client.topic(self._topic)
        partitions = [ProducePartition(index, memoryview(self._encode(batch))) for index, batch in batches.items()]
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout_ms=self._client.config.request_timeout_ms,
            topics=[ProduceTopic(topic.name, topic.topic_id, partitions)],
        )
        return request, LAST_VERSION_BY_NAME if topic.topic_id == ZERO_UUID else None

    def _encode(self, batch: _Numbered) -> bytearray:
        return build_batch(
            batch.records,
            codec=self._codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )

    def _settle(self, queue: list[_Numbered], result: ProducedPartition) -> Iterator[KafkaError]:
        """What an answer means for the head of the queue: stored, split, to be sent again, or hopeless."""
        head = queue[0]
        if result.error_code == DuplicateSequenceNumber.code:
            queue.pop(0)
            return
        if result.error_code == NONE:
            queue.pop(0)
            self.last_offsets[result.index] = result.base_offset + len(head.records) - 1
            return
        if result.error_code == MessageTooLarge.code and len(head.records) > 1:
            queue[:1] = head.halves()
            return
        yield self._error(result)

    def _error(self, result: ProducedPartition) -> KafkaError:
        partition = TopicPartition(self._topic, result.index)
        if result.error_code == UnknownTopicOrPartition.code:
            # The metadata knows the topic, so its leader will in a moment: worth a retry, unlike a topic nobody knows.
            return NotLeaderOrFollower(f"{partition}: the leader does not know the partition yet")
        error = error_for_code(result.error_code)
        return error_for_code(result.error_code, f"{partition}: {result.error_message or error.message}")
