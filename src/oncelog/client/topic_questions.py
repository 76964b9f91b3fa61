"""What topics there are, and how many partitions they have, for users who want to know: a consumer's `topics()` and
`partitions_for_topic()`.

Each question is one Metadata request of its own, which creates no topic and leaves what the client knows and wants
alone. Asked again, with a pause, until some broker answers, or nobody waits any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from oncelog.client.metadata import ClusterMetadata, TopicMetadata
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

NEVER_MS = 2**31

Told = Callable[[Mapping[str, TopicMetadata]], None]


class TopicQuestion:
    """For some topics, or for all."""

    __slots__ = ("done", "is_cancelled", "retry_at_ms", "topics")

    def __init__(self, topics: Collection[str] | None, done: Told) -> None:
        self.topics = topics
        self.done = done
        self.retry_at_ms = 0
        self.is_cancelled = False

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.is_cancelled = True


class _Tag(NamedTuple):
    question: TopicQuestion


class TopicQuestions:
    def __init__(self, network: Network, retry_backoff_ms: int) -> None:
        self._network = network
        self._retry_backoff_ms = retry_backoff_ms
        self._open: list[TopicQuestion] = []
        """Those that are not under way; a consumer asks one at a time."""

    def ask(self, topics: Collection[str] | None, done: Told) -> TopicQuestion:
        question = TopicQuestion(topics, done)
        self._open.append(question)
        return question

    def poll(self, now_ms: int) -> int:
        """Asks what is due; returns how long until the next is."""
        if not self._open:
            return NEVER_MS
        self._open = [question for question in self._open if not question.is_cancelled]
        wait_ms = NEVER_MS
        for question in list(self._open):
            if question.retry_at_ms > now_ms:
                wait_ms = min(wait_ms, question.retry_at_ms - now_ms)
                continue
            node_id = self._network.least_loaded(now_ms)
            if node_id is not None:  # else the network wakes us when there is one
                self._open.remove(question)
                self._network.send(node_id, ApiKey.METADATA, _body(question.topics), now_ms, tag=_Tag(question))
        return wait_ms

    def handle(self, event: Event, now_ms: int) -> bool:
        """Whether the event was the end of a question."""
        if not isinstance(event.tag, _Tag):
            return False
        question = event.tag.question
        if question.is_cancelled:
            return True
        if isinstance(event, Answered):
            question.done(ClusterMetadata.from_message(event.body).topics)
        else:
            question.retry_at_ms = now_ms + self._retry_backoff_ms
            self._open.append(question)
        return True


def _body(topics: Collection[str] | None) -> Message:
    asked = None if topics is None else [{"name": name} for name in topics]
    return {"topics": asked, "allow_auto_topic_creation": False}
