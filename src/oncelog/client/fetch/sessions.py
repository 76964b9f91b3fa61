"""Fetch sessions (KIP-227): a broker remembers what we read from it, and only changes are said.

One session for each broker. Knows nothing of the state of partitions: it is told what is wanted and what is not any
more, puts into a request what the broker has not heard, and learns from the answer whether the broker still knows what
we think it knows. What did not change costs nothing, however much of it there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    __slots__ = ("_held", "_unsaid", "_wanted", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL
        self._wanted: dict[Key, FetchPartition] = {}
        self._held: dict[Key, FetchPartition] = {}
        """What was wanted when the broker was last told."""
        self._unsaid: dict[Key, None] = {}
        """Where the two may differ."""

    @property
    def is_full(self) -> bool:
        return self.epoch == FULL

    def want(self, key: Key, partition: FetchPartition) -> None:
        self._wanted[key] = partition
        self._unsaid[key] = None

    def drop(self, key: Key) -> None:
        """It is not wanted any more; unknown ones are fine."""
        self._wanted.pop(key, None)
        self._unsaid[key] = None

    def drop_all(self) -> None:
        """Want nothing, and begin anew: names and ids do not mix in a session."""
        self._wanted.clear()
        self.restart()

    def say(self, turn: int = 0) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What the next request names, and what it takes back. A broker with a session goes round by itself; another
        one serves best what is named first: that is another one in each turn."""
        unsaid, self._unsaid = self._unsaid, {}
        if self.is_full:
            self._held = dict(self._wanted)
            named = list(self._wanted.items())
            first = turn % len(named) if named else 0
            return _topics(named[first:] + named[:first]), []
        news = []
        gone = []
        for key in unsaid:
            partition = self._wanted.get(key)
            if partition is None:
                if self._held.pop(key, None) is not None:
                    gone.append(key)
            elif self._held.get(key) != partition:
                self._held[key] = partition
                news.append((key, partition))
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
