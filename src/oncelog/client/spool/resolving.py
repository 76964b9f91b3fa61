"""Asks the leaders what they know of batches that an earlier process left open, and judges them.

One DescribeProducers request per leader; what cannot be answered now (no leader yet, the connection broke) is asked
again, without end: without an answer nothing may be sent. A refusal for good is an answer too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from oncelog.client.accumulator import Accumulator
from oncelog.client.metadata import NO_LEADER
from oncelog.client.network_events import Answered, Event, LostKind
from oncelog.client.sender import SenderCore
from oncelog.client.spool.fate import Judgement, ListedProducer, cannot_be_asked, judge
from oncelog.client.spool.recovery import OpenPartition
from oncelog.errors import NONE, error_for_code
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

ASK_AGAIN_MS: Final = 100


class Question:
    """One DescribeProducers request in flight."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)


class Resolver:
    def __init__(
        self,
        core: SenderCore,
        accumulator: Accumulator,
        left: Iterable[OpenPartition],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._core = core
        self._accumulator = accumulator
        self._wall_clock_ms = wall_clock_ms
        self._left = {one.partition: one for one in left}
        self._asked: set[TopicPartition] = set()
        self._ask_at_ms = 0
        self.judgements: dict[TopicPartition, Judgement] = {}
        for one in self._left.values():
            if not one.batches:
                self.judgements[one.partition] = judge(one, (), 0)

    @property
    def is_done(self) -> bool:
        return len(self.judgements) == len(self._left)

    def unresolved(self) -> list[TopicPartition]:
        return [partition for partition in self._left if partition not in self.judgements]

    def poll(self, now_ms: int) -> int:
        """Ask whoever can be asked; when to look again."""
        if now_ms < self._ask_at_ms:
            return self._ask_at_ms
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self.unresolved():
            self._core.metadata.want(partition.topic, now_ms)
            if partition not in self._asked and (leader := self._leader_of(partition)) != NO_LEADER:
                by_leader.setdefault(leader, []).append(partition)
        network = self._core.network
        for leader, partitions in by_leader.items():
            if network.is_ready(leader, now_ms):
                self._asked.update(partitions)
                tag = Question(partitions)
                network.send(leader, ApiKey.DESCRIBE_PRODUCERS, _question(partitions), now_ms, tag=tag)
            elif not network.is_connected(leader):
                network.connect(leader, now_ms)
        return now_ms + ASK_AGAIN_MS

    def _leader_of(self, partition: TopicPartition) -> int:
        code = self._core.metadata.topic_errors.get(partition.topic, NONE)
        if code != NONE and not error_for_code(code).retriable:
            self._judge_unasked(partition, error_for_code(code).message)
        topic = self._accumulator.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.queues):
            return NO_LEADER
        return topic.queues[partition.partition].leader

    def handle(self, event: Event, now_ms: int) -> None:
        assert isinstance(event.tag, Question)
        self._asked.difference_update(event.tag.partitions)
        if isinstance(event, Answered):
            for topic in event.body["topics"]:
                for answer in topic["partitions"]:
                    self._answered(TopicPartition(topic["name"], answer["partition_index"]), answer)
        elif event.kind is LostKind.UNSUPPORTED:
            for partition in event.tag.partitions:
                self._judge_unasked(partition, event.reason)
        if any(partition not in self.judgements for partition in event.tag.partitions):
            self._ask_at_ms = now_ms + ASK_AGAIN_MS
            self._core.metadata.mark_stale()

    def _answered(self, partition: TopicPartition, answer: Message) -> None:
        if partition not in self._left or partition in self.judgements:
            return
        code = answer["error_code"]
        if code == NONE:
            listed = [
                ListedProducer(one["producer_id"], one["producer_epoch"], one["last_sequence"])
                for one in answer["active_producers"]
            ]
            self.judgements[partition] = judge(self._left[partition], listed, self._wall_clock_ms())
        elif not error_for_code(code).retriable:
            self._judge_unasked(partition, answer["error_message"] or error_for_code(code).message)

    def _judge_unasked(self, partition: TopicPartition, reason: str) -> None:
        why = f"its leader does not tell what it stored ({reason})"
        self.judgements[partition] = cannot_be_asked(self._left[partition], why)


def _question(partitions: Iterable[TopicPartition]) -> Message:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]}
