"""Questions for offsets (ListOffsets): for resets of positions, and for users who want to know.

A question is one partition's. Those for the same leader travel together; each is asked again, with growing pauses,
until the leader knows, or nobody waits for it any more. Never decides what an offset means for a position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from oncelog.client.consumer_records import OffsetAndTimestamp
from oncelog.client.fetch.leaders import Leaders
from oncelog.client.fetch.settings import Backoff, FetchSettings
from oncelog.client.leaderless import without_leader
from oncelog.client.metadata import NO_LEADER
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, LostKind
from oncelog.errors import (
    NONE,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

NEVER_MS = 2**63 - 1
ABSENT_AFTER = 3
"""So many answers of brokers in a row must leave a partition out before whoever asks for it is told that there is none:
one broker may lag behind the others."""
TOPIC_ABSENT_AFTER = 10
"""The same of a whole topic, which may just have been created."""
_CONSUMER = -1

Found = OffsetAndTimestamp | None
"""None where no record is as young as the time that was asked for."""
Listed = dict[TopicPartition, Found]


class Question:
    """For one partition's offset."""

    __slots__ = (
        "absent_from", "answered", "attempts", "is_cancelled", "must_exist", "partition", "retry_at_ms", "spec",
    )  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        spec: int,
        answered: Callable[[Found | KafkaError], bool],
        must_exist: bool,
    ) -> None:
        self.partition = partition
        self.spec = spec
        self.answered = answered
        self.attempts = 0
        self.retry_at_ms = 0
        self.is_cancelled = False
        self.must_exist = must_exist
        self.absent_from: int | None = None
        """The number of the last answer of brokers before the first that left the partition out."""


class ListTag(NamedTuple):
    """One ListOffsets request in flight."""

    node_id: int
    questions: dict[TopicPartition, Question]


class Lookups:
    def __init__(
        self,
        settings: FetchSettings,
        network: Network,
        metadata: MetadataCache,
        leaders: Leaders,
        backoff: Backoff,
    ) -> None:
        self._settings = settings
        self._network = network
        self._metadata = metadata
        self._leaders = leaders
        self._backoff = backoff
        self._open: dict[Question, None] = {}
        """Those that are not under way, in the order in which they came."""
        self._refusals: dict[TopicPartition, KafkaError] = {}
        """Why they are asked again, of those that are."""

    def ask(
        self,
        partition: TopicPartition,
        spec: int,
        answered: Callable[[Found | KafkaError], bool],
        *,
        must_exist: bool = False,
    ) -> Question:
        """`answered` gets the offset, or an error that asking again may not mend; it returns whether it is content. A
        partition that does not exist is waited for, unless it `must_exist`."""
        question = Question(partition, spec, answered, must_exist)
        self._open[question] = None
        return question

    def poll(self, now_ms: int) -> int:
        """Asks what is due; returns when the next is."""
        by_node: dict[int, dict[TopicPartition, Question]] = {}
        wake_ms = NEVER_MS
        for question in list(self._open):
            if question.is_cancelled:
                del self._open[question]
                self._refusals.pop(question.partition, None)
                continue
            if question.retry_at_ms > now_ms:
                wake_ms = min(wake_ms, question.retry_at_ms)
                continue
            node_id, _ = self._leaders.of(question.partition)
            if question.must_exist and node_id == NO_LEADER and self._gives_up(question, now_ms):
                continue
            if self._leaders.can_ask(node_id, question.partition.topic, now_ms):
                # A second question for a partition has to wait for the first: a request names each once.
                by_node.setdefault(node_id, {}).setdefault(question.partition, question)
        for node_id, questions in by_node.items():
            self._send(ListTag(node_id, questions), now_ms)
        return wake_ms

    def _gives_up(self, question: Question, now_ms: int) -> bool:
        """Brokers say time and again that there is no such partition."""
        objection = self._objection(question.partition)
        if objection is None:
            question.absent_from = None
            return False
        if question.absent_from is None:
            question.absent_from = self._metadata.answers
        is_topic_known = question.partition.topic not in self._metadata.topic_errors
        patience = ABSENT_AFTER if is_topic_known else TOPIC_ABSENT_AFTER
        if self._metadata.answers - question.absent_from < patience:
            return False
        del self._open[question]
        self._settle(question, UnknownTopicOrPartition(objection), now_ms)
        return True

    def _objection(self, partition: TopicPartition) -> str | None:
        """Why brokers do not know it; None if they do, or have not been asked."""
        topic = partition.topic
        if self._metadata.topic_errors.get(topic) == UnknownTopicOrPartition.code:
            return f"topic {topic!r} does not exist: create it, or correct its name"
        cluster = self._metadata.cluster
        return None if cluster is None else cluster.objection_to(topic, partition.partition)

    def _send(self, tag: ListTag, now_ms: int) -> None:
        for question in tag.questions.values():
            del self._open[question]
        body: Message = {
            "replica_id": _CONSUMER,
            "isolation_level": self._settings.isolation_level,
            "timeout_ms": self._settings.request_timeout_ms,
            "topics": _by_topic(tag.questions, self._leaders),
        }
        self._network.send(tag.node_id, ApiKey.LIST_OFFSETS, body, now_ms, tag=tag)

    def handle(self, tag: ListTag, event: Event, now_ms: int) -> None:
        answers: Mapping[TopicPartition, Message] = {}
        if isinstance(event, Answered):
            answers = _by_partition(event.body)
            self._network.throttle(tag.node_id, now_ms + event.body["throttle_time_ms"])
        elif event.kind is LostKind.UNSUPPORTED:
            for question in tag.questions.values():
                self._settle(question, UnsupportedVersion(event.reason), now_ms)
            return
        else:
            self._metadata.mark_stale()
        for partition, question in tag.questions.items():
            self._answer(question, answers.get(partition), now_ms)

    def _answer(self, question: Question, answer: Message | None, now_ms: int) -> None:
        if question.is_cancelled:
            self._refusals.pop(question.partition, None)
            return
        code = NONE if answer is None else answer["error_code"]
        error = error_for_code(code, f"{question.partition}: {error_for_code(code).message}") if code else None
        if answer is not None and error is None:
            offset = answer["offset"]
            if offset >= 0:
                self._settle(question, OffsetAndTimestamp(offset, answer["timestamp"], answer["leader_epoch"]), now_ms)
                return
            if question.spec >= 0:
                self._settle(question, None, now_ms)
                return
        if isinstance(error, UnsupportedForMessageFormat):
            self._settle(question, None, now_ms)
        elif error is None or error.retriable:
            if error is not None:
                self._refusals[question.partition] = error
            self._metadata.mark_stale()
            self._again(question, now_ms)
        else:
            self._settle(question, error, now_ms)

    def why_unanswered(self, partitions: Collection[TopicPartition]) -> str | None:
        """What is known of partitions of which nobody tells an offset; None if nothing. For any thread."""
        leaderless = [partition for partition in partitions if self._leaders.of(partition)[0] == NO_LEADER]
        objections = (self._objection(partition) for partition in leaderless)
        objection = next((one for one in objections if one is not None), None)
        if objection is not None:
            return objection
        leaderless = [partition for partition in leaderless if self._leaders.told(partition) is not None]
        if leaderless:
            return without_leader(leaderless)
        refusals = (self._refusals.get(partition) for partition in partitions)
        return next((refusal.message for refusal in refusals if refusal is not None), None)

    def _settle(self, question: Question, result: Found | KafkaError, now_ms: int) -> None:
        self._refusals.pop(question.partition, None)
        if question.is_cancelled:
            return
        if not question.answered(result):
            self._again(question, now_ms)

    def _again(self, question: Question, now_ms: int) -> None:
        question.attempts += 1
        question.retry_at_ms = now_ms + self._backoff.after(question.attempts)
        self._open[question] = None


class Survey:
    """One call's questions, for several partitions: answered as a whole, or with the first error."""

    def __init__(
        self, lookups: Lookups, specs: Mapping[TopicPartition, int], done: Callable[[Listed | Exception], None]
    ) -> None:
        self._found: Listed = {}
        self._missing = len(specs)
        self._done = done
        self._questions = [lookups.ask(one, spec, self._answered(one), must_exist=True) for one, spec in specs.items()]
        if not specs:
            done({})

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        for question in self._questions:
            question.is_cancelled = True

    def _answered(self, partition: TopicPartition) -> Callable[[Found | KafkaError], bool]:
        def answered(result: Found | KafkaError) -> bool:
            if isinstance(result, KafkaError):
                self.cancel()
                self._done(result)
                return True
            self._found[partition] = result
            self._missing -= 1
            if not self._missing:
                self._done(self._found)
            return True

        return answered


def _by_topic(questions: Mapping[TopicPartition, Question], leaders: Leaders) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition, question in questions.items():
        _, epoch = leaders.of(partition)
        one = {"partition_index": partition.partition, "current_leader_epoch": epoch, "timestamp": question.spec}
        topics.setdefault(partition.topic, []).append(one)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _by_partition(body: Message) -> dict[TopicPartition, Message]:
    topics: Sequence[Message] = body["topics"]
    return {
        TopicPartition(topic["name"], one["partition_index"]): one for topic in topics for one in topic["partitions"]
    }
