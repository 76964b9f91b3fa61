"""What `Consumer` and `AsyncConsumer` have in common: their parts, and the calls that never wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.client.consumer_calls.commits import OffsetsInput
from oncelog.client.consumer_core import OnCommit
from oncelog.client.consumer_records import GroupMetadata
from oncelog.consumer.assembly import Parts
from oncelog.types import TopicPartition

PartitionInput = TopicPartition | tuple[str, int]
CLOSE_TIMEOUT_S = 30.0
Topics = str | Iterable[str] | re.Pattern[str]


class ConsumerFace:
    _parts: Parts

    def _check_usable(self) -> None:
        raise NotImplementedError

    def subscription(self) -> frozenset[str] | re.Pattern[str]:
        """The topics, or the pattern, that were subscribed to."""
        subscribed = self._parts.calls.selection.subscription
        return subscribed if isinstance(subscribed, re.Pattern) else frozenset(subscribed or ())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads at the moment."""
        return self._parts.core.assignment

    def paused(self) -> frozenset[TopicPartition]:
        return self._parts.calls.selection.paused()

    def lag(self, partition: PartitionInput) -> int | None:
        """What is left to read of the partition, as far as the last fetch told; None before the first. Of what was
        fetched the records that this consumer would be shown are counted, behind that every offset: exact once all is
        fetched, and never too small. Under `read_committed` the end is where the first transaction begins that has not
        ended."""
        return self._parts.calls.positions.lag(named(partition))

    def commit_async(self, offsets: OffsetsInput | None = None, on_commit: OnCommit | None = None) -> None:
        """Commit offsets (by default the positions) without waiting, and without retries: a later offset commit
        replaces it. `on_commit(offsets, error)` is called in a later `poll()`, with `error` None if it went well."""
        self._check_usable()
        self._parts.calls.commits.commit_async(None if offsets is None else named_offsets(offsets), on_commit)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""
        return self._parts.calls.commits.group_metadata()

    def metrics(self) -> dict[str, float]:
        """How the consumer does, under Kafka's names."""
        return self._parts.metrics()

    @property
    def client_id(self) -> str:
        return self._parts.config.client_id


def named(partition: PartitionInput) -> TopicPartition:
    if isinstance(partition, tuple) and len(partition) == 2:
        topic, index = partition
        if isinstance(topic, str) and isinstance(index, int) and index >= 0:
            return TopicPartition(topic, index)
    raise TypeError(f"a partition is (topic, number), not {partition!r}")


def all_named(partitions: Iterable[PartitionInput]) -> list[TopicPartition]:
    return [named(partition) for partition in partitions]


def named_offsets(offsets: Mapping[Any, Any]) -> OffsetsInput:
    return {named(partition): offset for partition, offset in offsets.items()}


def checked_topics(topics: Topics) -> frozenset[str] | re.Pattern[str]:
    """One name, several, or a pattern: a compiled one, or a text that begins with ^, as librdkafka has it."""
    if isinstance(topics, re.Pattern):
        return topics
    if isinstance(topics, str):
        return re.compile(topics) if topics.startswith("^") else frozenset([topics])
    names = frozenset(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"topics are names, not {name!r}")
    return names


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, int(seconds * 1000))


def cancel(pending: list[Any]) -> None:
    """Questions whose askers have given up."""
    for question in pending:
        if question is not None:
            question.cancel()


def checked_limit(max_records: int | None) -> int | None:
    if max_records is not None and max_records < 1:
        raise ValueError(f"max_records is 1 or more, not {max_records}")
    return max_records


def checked_timestamp(timestamp_ms: int) -> int:
    if timestamp_ms < 0:
        raise ValueError(f"a timestamp is 0 or more milliseconds, not {timestamp_ms}")
    return timestamp_ms


def answer_of(answers: list[Any], fatal: Exception | None) -> Any:
    """What the core answered; raises what it said instead, or why it will never answer."""
    answer = answers[0] if answers else fatal
    if isinstance(answer, Exception):
        raise answer.with_traceback(None)
    return answer
