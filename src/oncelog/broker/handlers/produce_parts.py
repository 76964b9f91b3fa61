"""Produce requests that bring many batches: appended in parts, between which the loop serves others.

Owns how such a request is taken apart and its answer put together. An append may roll a segment or create the files of
a partition, so thousands of them in a row would hold up everybody. Each part is a request of its own to whoever appends
it: a transaction is verified again for every part, since it may end between two of them. What the client sends next
waits, so the order of its batches is kept. If the connection of a client that waits for an answer ends, what is left is
not appended; nothing of the request was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.broker.request import Answer, CloseConnection, Late, Pending, Request
from oncelog.wire.produce import ProducedPartition, ProducedTopic, ProduceRequest, ProduceTopic

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

ACKS_NONE: Final = 0

MAX_BATCHES_AT_ONCE: Final = 16
"""More are appended in parts."""

PART_BATCHES: Final = 4
"""Of a part: each may take a millisecond, if it rolls a segment."""

TRANSACTIONAL_PART_BATCHES: Final = 16
"""The coordinator writes a record for each part that enters new partitions."""

SLICE_MS: Final = 3
"""How long parts are appended before the loop sees its other clients."""

Came = Callable[[list[ProducedTopic]], int]
"""Takes what came of a part; how many batches of the same topic came before."""
AppendPart = Callable[[Request, int, Came], Answer]
"""Appends a request, the position of whose topic in the whole is told, and hands over what came of it before its answer
is complete."""


def brings_many(topics: Sequence[ProduceTopic]) -> bool:
    if len(topics) == 1:
        return len(topics[0].partitions) > MAX_BATCHES_AT_ONCE
    return sum([len(topic.partitions) for topic in topics]) > MAX_BATCHES_AT_ONCE


def parts_of(produce: ProduceRequest) -> Iterator[tuple[int, ProduceRequest]]:
    """Requests of a few batches each, with the position of their topic."""
    size = PART_BATCHES if produce.transactional_id is None else TRANSACTIONAL_PART_BATCHES
    for position, topic in enumerate(produce.topics):
        for start in range(0, len(topic.partitions), size):
            part = topic._replace(partitions=topic.partitions[start : start + size])
            yield position, produce._replace(topics=[part])


class InParts:
    def __init__(
        self,
        broker: BrokerState,
        request: Request,
        append: AppendPart,
        finish: Callable[[list[ProducedTopic]], Answer],
    ) -> None:
        self._timers = broker.timers
        self._request = request
        self._append = append
        self._finish = finish
        self._parts = parts_of(request.body)
        self._partitions: list[list[ProducedPartition]] = [[] for _ in request.body.topics]
        self._pending = Pending(holds_connection=True)
        if request.body.acks != ACKS_NONE:  # else the client may have gone, and wants it done all the same
            self._pending.abandon = self._stop
        self._part_in_hand: Pending | None = None
        self._is_stopped = False

    def answer(self) -> Answer:
        """At once, if the first slice was enough."""
        finished = self._go_on()
        return self._pending if finished is None else finished

    def _stop(self) -> None:
        self._is_stopped = True
        part = self._part_in_hand
        if part is not None and part.abandon is not None:
            part.abandon()

    def _later(self) -> None:
        self._timers.later(0, lambda: self._pending.attempt(self._continue))

    def _continue(self) -> None:
        finished = self._go_on()
        if finished is not None:
            self._pending.abandon = None
            self._pending.follow(finished)

    def _go_on(self) -> Answer | None:
        """As many parts as fit into a slice; a part that waits for something goes on when that has come. The answer,
        if that was the last."""
        until_ms = self._timers.now_ms() + SLICE_MS
        while not self._is_stopped:
            step = next(self._parts, None)
            if step is None:
                return self._finish(self._produced())
            if self._waits_for(*step):
                return None
            if self._timers.now_ms() >= until_ms:
                self._later()
                return None
        return None

    def _produced(self) -> list[ProducedTopic]:
        topics = self._request.body.topics
        return [
            ProducedTopic(topic.name, topic.topic_id, partitions)
            for topic, partitions in zip(topics, self._partitions, strict=True)
        ]

    def _waits_for(self, position: int, part: ProduceRequest) -> bool:
        def came(topics: list[ProducedTopic]) -> int:
            before = len(self._partitions[position])
            for topic in topics:
                self._partitions[position].extend(topic.partitions)
            return before

        answer = self._append(self._request._replace(body=part), position, came)
        if not isinstance(answer, Pending):
            return False

        def completed(answered: Late) -> None:
            self._part_in_hand = None
            if isinstance(answered, CloseConnection):
                self._pending.complete(answered)
            else:
                self._later()

        answer.on_complete = completed
        self._part_in_hand = answer
        return True
