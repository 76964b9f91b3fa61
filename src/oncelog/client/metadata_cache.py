"""What the client knows of the cluster, and when it must ask again. Never asks itself: `Cluster` does."""

from __future__ import annotations

from oncelog.client.metadata import NO_LEADER, ClusterMetadata
from oncelog.wire.codec import Message


class MetadataCache:
    def __init__(
        self, *, max_age_ms: int, max_idle_ms: int, retry_backoff_ms: int, may_create_topics: bool = True
    ) -> None:
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._may_create_topics = may_create_topics
        self.wants_all = False
        """Ask about every topic there is: a reader by pattern does."""
        self.cluster: ClusterMetadata | None = None
        self.topic_errors: dict[str, int] = {}
        """What the brokers last said against a wanted topic."""
        self.answers = 0
        """How often the brokers told."""
        self.asked = 0
        """How often they were asked: the number of the last question."""
        self.answered = 0
        """The number of the last question that they answered. Whoever wants to know how things are now remembers
        `asked`, marks what is known as stale, and waits until this is greater."""
        self._wanted: dict[str, int] = {}
        self._unusable: set[str] = set()
        """What was asked for, and could not be used at the last answer."""
        self._is_stale = True
        self._is_asking = False
        self._asked_all = False
        self._asked: frozenset[str] = frozenset()
        self._asked_ms: int | None = None
        self._learned_ms = 0

    def want(self, topic: str, now_ms: int) -> None:
        """The topic is in use. One that is new is asked for at once, one that brokers had nothing to tell of soon."""
        if topic not in self._wanted:
            self._is_stale = True
            if topic not in self._unusable:
                self._asked_ms = None
        self._wanted[topic] = now_ms

    @property
    def knows_all(self) -> bool:
        """The last answer was about every topic there is."""
        return self._asked_all and self.answers > 0

    def mark_stale(self) -> None:
        self._is_stale = True

    def due_ms(self) -> int | None:
        """When to ask; None while an answer is awaited."""
        if self._is_asking:
            return None
        if not self._is_stale:
            return self._learned_ms + self._max_age_ms
        return 0 if self._asked_ms is None else self._asked_ms + self._retry_backoff_ms

    def question(self, now_ms: int) -> Message:
        """The request that asks about the topics in use."""
        for topic in [topic for topic, used_ms in self._wanted.items() if now_ms - used_ms > self._max_idle_ms]:
            del self._wanted[topic]
        self._is_stale = False
        self.asked += 1  # after that: another thread that sees it and marks what is known as stale is not overlooked
        self._is_asking = True
        self._asked_all = self.wants_all
        self._asked = frozenset(self._wanted)
        self._asked_ms = now_ms
        names = None if self.wants_all else [{"name": name} for name in self._wanted]
        return {"topics": names, "allow_auto_topic_creation": self._may_create_topics and not self.wants_all}

    def failed(self) -> None:
        self._is_asking = False
        self._is_stale = True

    def learn(self, answer: Message, now_ms: int) -> ClusterMetadata:
        self._is_asking = False
        self._learned_ms = now_ms
        self.answers += 1
        self.answered = self.asked
        told = ClusterMetadata.from_message(answer)
        self.cluster = told if self._asked_all else told.keeping_topics_of(self.cluster)
        for name in list(self._wanted):
            if name not in self._asked:  # wanted while the question was under way: asked next
                self._is_stale = True
                continue
            topic = told.topics.get(name)
            self.topic_errors.pop(name, None)
            self._unusable.discard(name)
            if topic is None or not topic.is_usable:
                self._unusable.add(name)
                # Whoever needs it wants it again; a name that nobody waits for is not asked for until it exists.
                del self._wanted[name]
                if topic is not None and topic.error_code:
                    self.topic_errors[name] = topic.error_code
            elif any(partition.leader == NO_LEADER for partition in topic.partitions):
                self._is_stale = True
        return told
