"""Whether the log still has what was read (KIP-320): asked of every new leader, by the epoch of the last batch read.

Finds out only; what a truncated log means for a position is the fetcher's to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from oncelog.client.fetch.leaders import Leaders
from oncelog.client.fetch.lookups import NEVER_MS
from oncelog.client.fetch.partitions import PartitionState, Stage, Truncated
from oncelog.client.fetch.settings import Backoff
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, LostKind
from oncelog.errors import NONE, KafkaError, error_for_code
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

_CONSUMER = -1


class Doubt(NamedTuple):
    """What is asked about a partition. An answer counts only while none of it has changed."""

    state: PartitionState
    seek_count: int
    leader_epoch: int

    @property
    def is_current(self) -> bool:
        state = self.state
        is_same = self.seek_count == state.seek_count and self.leader_epoch == state.leader_epoch
        return is_same and state.stage is Stage.VALIDATING


class EpochTag(NamedTuple):
    """One OffsetForLeaderEpoch request in flight."""

    node_id: int
    doubts: dict[TopicPartition, Doubt]


class Validation:
    def __init__(
        self,
        network: Network,
        metadata: MetadataCache,
        leaders: Leaders,
        backoff: Backoff,
        *,
        trusted: Callable[[PartitionState], None],
        truncated: Callable[[PartitionState, Truncated, int], None],
        refused: Callable[[PartitionState, KafkaError], None],
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._leaders = leaders
        self._backoff = backoff
        self._trusted = trusted
        self._truncated = truncated
        self._refused = refused
        self._asking: set[PartitionState] = set()

    def poll(self, states: Iterable[PartitionState], now_ms: int) -> int:
        """Asks about those that are to be validated; returns when the next is due."""
        by_node: dict[int, dict[TopicPartition, Doubt]] = {}
        wake_ms = NEVER_MS
        for state in states:
            if state.stage is not Stage.VALIDATING or state in self._asking:
                continue
            if state.retry_at_ms > now_ms:
                wake_ms = min(wake_ms, state.retry_at_ms)
            elif self._leaders.can_ask(state.leader, state.partition.topic, now_ms):
                doubt = Doubt(state, state.seek_count, state.leader_epoch)
                by_node.setdefault(state.leader, {})[state.partition] = doubt
        for node_id, doubts in by_node.items():
            self._asking.update(doubt.state for doubt in doubts.values())
            body: Message = {"replica_id": _CONSUMER, "topics": _by_topic(doubts)}
            tag = EpochTag(node_id, doubts)
            self._network.send(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, body, now_ms, tag=tag)
        return wake_ms

    def handle(self, tag: EpochTag, event: Event, now_ms: int) -> None:
        self._asking.difference_update(doubt.state for doubt in tag.doubts.values())
        answers: dict[TopicPartition, Message] = {}
        if isinstance(event, Answered):
            self._network.throttle(tag.node_id, now_ms + event.body["throttle_time_ms"])
            answers = _by_partition(event.body["topics"])
        elif event.kind is not LostKind.UNSUPPORTED:
            self._metadata.mark_stale()
        for partition, doubt in tag.doubts.items():
            if not doubt.is_current:
                continue
            if not isinstance(event, Answered) and event.kind is LostKind.UNSUPPORTED:
                self._trusted(doubt.state)  # a broker so old cannot tell; it is read as before there were epochs
            else:
                self._judge(doubt.state, answers.get(partition), now_ms)

    def _judge(self, state: PartitionState, answer: Message | None, now_ms: int) -> None:
        if answer is None or answer["error_code"] != NONE:
            self._failed(state, answer, now_ms)
            return
        end_offset, leader_epoch = answer["end_offset"], answer["leader_epoch"]
        if end_offset < 0 or leader_epoch < 0:
            self._truncated(state, Truncated(NO_OFFSET, NO_LEADER_EPOCH), now_ms)
        elif end_offset < state.fetch_offset:
            self._truncated(state, Truncated(end_offset, leader_epoch), now_ms)
        else:
            self._trusted(state)

    def _failed(self, state: PartitionState, answer: Message | None, now_ms: int) -> None:
        state.failed(now_ms + self._backoff.after(state.attempts + 1))
        if answer is None:
            return
        error = error_for_code(answer["error_code"], f"{state.partition}: {error_for_code(answer['error_code'])}")
        if error.retriable:
            self._metadata.mark_stale()
        else:
            self._refused(state, error)


def _by_topic(doubts: dict[TopicPartition, Doubt]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition, (state, _, leader_epoch) in doubts.items():
        one = {
            "partition": partition.partition,
            "current_leader_epoch": leader_epoch,
            "leader_epoch": state.fetch_epoch,
        }
        topics.setdefault(partition.topic, []).append(one)
    return [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]


def _by_partition(topics: Sequence[Message]) -> dict[TopicPartition, Message]:
    return {TopicPartition(topic["topic"], one["partition"]): one for topic in topics for one in topic["partitions"]}
