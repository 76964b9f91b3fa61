"""What `Consumer` and `AsyncConsumer` have in common: their parts, and the calls that never wait."""

from __future__ import annotations

import re
from typing import Any

from oncelog.client import arguments as checked
from oncelog.client.arguments import OffsetsInput, PartitionInput
from oncelog.client.callbacks import check_callback, check_listener
from oncelog.client.cluster import connection_text
from oncelog.client.consumer_calls.steps import Listener, OnPartitions
from oncelog.client.consumer_core import OnCommit
from oncelog.client.consumer_records import GroupMetadata
from oncelog.consumer.assembly import Parts
from oncelog.types import TopicPartition

CLOSE_TIMEOUT_S = 30.0
KEPT_WAITING_MS = 500
"""After an answer could have come, how long it may take before it is missed."""


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
        return self._parts.calls.positions.lag(checked.partition(partition))

    def commit_async(self, offsets: OffsetsInput | None = None, on_commit: OnCommit | None = None) -> None:
        """Commit offsets (by default the positions) without waiting, and without retries: a later offset commit
        replaces it. `on_commit(offsets, error)` is called in a later `poll()`, with `error` None if it went well."""
        self._check_usable()
        check_callback(on_commit, "on_commit", "offsets")
        self._parts.calls.commits.commit_async(None if offsets is None else checked.offsets(offsets), on_commit)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""
        return self._parts.calls.commits.group_metadata()

    def metrics(self) -> dict[str, float]:
        """How the consumer does, under Kafka's names."""
        return self._parts.metrics()

    @property
    def client_id(self) -> str:
        return self._parts.config.client_id

    @property
    def missing_topics(self) -> frozenset[str]:
        """Topics that this consumer is to read and that do not exist, as far as brokers have told. Each is a WARNING as
        well."""
        return self._parts.core.missing_topics

    @property
    def matches_nothing(self) -> bool:
        """Whether the pattern that was subscribed to matches no topic, as far as brokers have told. That is a WARNING
        as well."""
        return self._parts.core.matches_nothing

    @property
    def is_connected(self) -> bool:
        """Whether a broker is connected at the moment. A consumer that is not tries on, and says so in its log."""
        return self._parts.core.is_connected

    @property
    def _is_kept_waiting(self) -> bool:
        """A broker owes an answer: whether there is more to read is not known."""
        since_ms = self._parts.core.network.owes_since_ms(now_ms := self._parts.clock())
        return since_ms is not None and now_ms - since_ms >= KEPT_WAITING_MS

    def __repr__(self) -> str:
        parts: Parts | None = getattr(self, "_parts", None)
        if parts is None:  # it was never made
            return f"<{type(self).__name__}>"
        group = "" if parts.config.group_id is None else f" group {parts.config.group_id!r}"
        where = connection_text(parts.core.connected_to, parts.config.bootstrap_servers)
        state = "closed" if parts.core.is_finished else where
        return f"<{type(self).__name__} {parts.config.client_id!r}{group} {state}>"


def cancel(pending: list[Any]) -> None:
    """Questions whose askers have given up."""
    for question in pending:
        if question is not None:
            question.cancel()


def answer_of(answers: list[Any], fatal: Exception | None) -> Any:
    """What the core answered; raises what it said instead, or why it will never answer."""
    answer = answers[0] if answers else fatal
    if isinstance(answer, Exception):
        raise answer.with_traceback(None)
    return answer


def checked_listener(
    on_assigned: OnPartitions | None, on_revoked: OnPartitions | None, on_lost: OnPartitions | None
) -> Listener:
    check_listener(on_assigned, "on_assigned")
    check_listener(on_revoked, "on_revoked")
    check_listener(on_lost, "on_lost")
    return Listener(on_assigned, on_revoked, on_lost)
