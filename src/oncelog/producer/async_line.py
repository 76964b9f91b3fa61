"""Records that an `AsyncProducer` took and could not put into a batch yet: a line for each topic, in the order of send.

They wait for their topic to become known or to grow, or for memory; a topic that nobody knows holds up no other.
Decides who moves on, who fails and what the sender is asked for; who calls it, and when, is the producer's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from oncelog.producer.assembly import Parts, Serialized

MAX_WAITING_SENDS = 10_000


class Waiting(NamedTuple):
    record: Serialized
    future: Any
    """Of asyncio, or what looks like one."""
    deadline_ms: int
    asked_before: int
    """How often the brokers had told of the cluster when it was sent: the next time they know of new partitions."""
    number: int


class Lines:
    def __init__(self, parts: Parts, attempt: Callable[[Serialized, Any], bool]) -> None:
        """`attempt` puts a record into a batch. False if it must wait; raises what is wrong with it."""
        self._parts = parts
        self._attempt = attempt
        self._lines: dict[str, deque[Waiting]] = {}
        self._awaited_topics: set[str] = set()
        self._waiting_for_memory = 0
        self.count = 0
        """How many wait; read for every record, hence no property."""
        self.last_number = 0
        """Of the one who came last."""

    @property
    def first_number(self) -> int:
        """Of the one who has waited longest; beyond the last if nobody waits."""
        return min((line[0].number for line in self._lines.values()), default=self.last_number + 1)

    def send(self, record: Serialized, future: Any, now_ms: int) -> bool:
        """Into a batch, if nobody waits before it; else into the line. Returns whether it waits. Raises what is wrong
        with the record, and BufferExhausted."""
        parts = self._parts
        metadata = parts.core.metadata
        number = self.last_number + 1
        waiting = Waiting(record, future, now_ms + parts.config.max_block_ms, metadata.asked, number)
        line = self._lines.get(record.topic)
        if line is None and not self._may_grow(waiting) and self._attempt(record, future):
            return False
        if self.count >= MAX_WAITING_SENDS:
            parts.counters.buffer_exhausted += 1
            raise parts.exhausted()
        if not self._is_known(record.topic):
            if line is None:
                metadata.topic_errors.pop(record.topic, None)  # what was said earlier need not hold any more
        elif self._may_grow(waiting):
            metadata.mark_stale()
        elif line is None and parts.config.buffer_full != "block":
            self._refuse(waiting)
            return False
        self._lines.setdefault(record.topic, deque()).append(waiting)
        self.last_number = number
        self.count += 1
        self._ask()
        return True

    def move(self) -> None:
        """There is news: whoever can go on does."""
        for topic, line in list(self._lines.items()):
            while line and self._leaves(line[0]):
                line.popleft()
                self.count -= 1
            if not line:
                del self._lines[topic]
        self._ask()

    def expire(self, now_ms: int) -> None:
        self._fail_while(lambda waiting: waiting.deadline_ms <= now_ms, self._too_late)

    def fail_all(self, error: Exception) -> None:
        self._fail_while(lambda waiting: True, lambda waiting: error)

    # --- one record ---------------------------------------------------------------------------------------------

    def _leaves(self, waiting: Waiting) -> bool:
        """Whether the first in line is in a batch now, or has failed."""
        parts, record = self._parts, waiting.record
        try:
            parts.check_usable()
            error = parts.topic_error(record.topic)
            if error is not None:
                raise error
            if self._may_grow(waiting):
                return False
            if not self._attempt(record, waiting.future):
                if not self._is_known(record.topic) or parts.config.buffer_full == "block":
                    return False
                self._refuse(waiting)
        except Exception as error:
            self._fail(waiting, error)
        return True

    def _refuse(self, waiting: Waiting) -> None:
        """Memory is full, and the user does not want to wait."""
        counters = self._parts.counters
        counters.buffer_exhausted += 1
        if self._parts.config.buffer_full == "fail":
            raise self._parts.exhausted()
        counters.records_dropped += 1
        self._fail(waiting, self._parts.exhausted())

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        self._parts.not_accepted(error)
        if not waiting.future.done():
            waiting.future.set_exception(error)
            waiting.future.exception()  # seen: a result that nobody looks at is no warning

    def _too_late(self, waiting: Waiting) -> Exception:
        parts = self._parts
        if not self._is_known(waiting.record.topic):
            return parts.unavailable(waiting.record.topic)
        parts.counters.buffer_exhausted += 1
        return parts.exhausted()

    def _is_known(self, topic: str) -> bool:
        return topic in self._parts.accumulator.topics

    def _may_grow(self, waiting: Waiting) -> bool:
        """Whether it names a partition that its topic may have by now, and the brokers were not asked since."""
        topic = self._parts.accumulator.topics.get(waiting.record.topic)
        partition = waiting.record.partition
        if topic is None or partition is None or partition < len(topic.queues):
            return False
        return self._parts.core.metadata.answered <= waiting.asked_before

    # --- all of them --------------------------------------------------------------------------------------------

    def _fail_while(self, is_over: Callable[[Waiting], bool], error_for: Callable[[Waiting], Exception]) -> None:
        for topic, line in list(self._lines.items()):
            while line and is_over(line[0]):
                waiting = line.popleft()
                self.count -= 1
                self._fail(waiting, error_for(waiting))
            if not line:
                del self._lines[topic]
        self._ask()

    def _ask(self) -> None:
        """What the sender is to bring about for those who are first in line, beside what others ask for."""
        parts = self._parts
        first = {topic: line[0] for topic, line in self._lines.items()}
        asked = {topic for topic, one in first.items() if not self._is_known(topic) or self._may_grow(one)}
        waiting_for_memory = len(first) - len(asked)
        before, self._awaited_topics = self._awaited_topics, asked
        for topic in asked - before:
            parts.await_topic(topic)
        for topic in before - asked:
            parts.await_topic_no_more(topic)
        parts.accumulator.are_waiting_for_memory += waiting_for_memory - self._waiting_for_memory
        self._waiting_for_memory = waiting_for_memory
