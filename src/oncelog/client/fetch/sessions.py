"""Fetch sessions (KIP-227): a broker remembers what we read from it, and only changes are said.

One session for each broker. Knows nothing of the state of partitions: it turns "this is what I want now" into the
request that says so, and learns from the answer whether the broker still knows what we think it knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from oncelog.errors import FetchSessionIdNotFound
from oncelog.wire.fetch import FetchPartition, FetchTopic, ForgottenTopic

Key = tuple[UUID | str, int]
"""A partition as this version of the request names it: by the topic's id, or by its name."""

NO_SESSION = 0
FULL = 0
"""The epoch of a request that says everything anew."""
MAX_EPOCH = 2**31 - 1


class FetchSession:
    __slots__ = ("_held", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL
        self._held: dict[Key, FetchPartition] = {}

    @property
    def is_full(self) -> bool:
        return self.epoch == FULL

    def say(self, wanted: Mapping[Key, FetchPartition], by_id: bool) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What the next request names, and what it takes back."""
        if any(isinstance(topic, UUID) != by_id for topic, _ in self._held):
            self.restart()  # names and ids do not mix in a session
        held = {} if self.is_full else self._held
        news = [(key, partition) for key, partition in wanted.items() if held.get(key) != partition]
        gone = [key for key in held if key not in wanted]
        self._held = dict(wanted)
        return _topics(news), _forgotten(gone)

    def learned(self, error_code: int, session_id: int, told: Collection[Key]) -> None:
        """What the answer's head says; `told` are the partitions in it."""
        if error_code == FetchSessionIdNotFound.code:
            self.session_id = NO_SESSION
            self.epoch = FULL
        elif error_code or not self._is_coherent(told):
            self.restart()
        elif session_id == NO_SESSION:
            self.session_id = NO_SESSION
            self.epoch = FULL
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def restart(self) -> None:
        """Neither side can be sure what the other knows: end the session, and begin another with the same request."""
        self.epoch = FULL

    def _is_coherent(self, told: Collection[Key]) -> bool:
        if self.is_full:
            return len(told) == len(self._held) and all(key in self._held for key in told)
        return all(key in self._held for key in told)


def _topics(partitions: Iterable[tuple[Key, FetchPartition]]) -> list[FetchTopic]:
    topics: dict[UUID | str, list[FetchPartition]] = {}
    for (topic, _), partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(*_names(topic), partitions) for topic, partitions in topics.items()]


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[UUID | str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(*_names(topic), indexes) for topic, indexes in topics.items()]


def _names(topic: UUID | str) -> tuple[str, UUID | None]:
    return (topic, None) if isinstance(topic, str) else ("", topic)
