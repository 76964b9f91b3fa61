"""Which rows of a key are news: the rule, as a value that meets rows in their order. No Spark in here.

Keys are spread over a fixed number of buckets, and the state of a bucket is one text: asking Spark for state takes
about a millisecond each time, so it is asked once for many keys. `Highest` is that text while it is worked on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

Payload = TypeVar("Payload")


class Seen(NamedTuple):
    """The highest version of a key, and the latest event time of its rows (0 where times do not matter)."""

    version: int
    time_ms: int


class Highest:
    """The highest version of every key of a bucket."""

    def __init__(self, seen: dict[str, Seen]) -> None:
        self._seen = seen
        self.changed = False

    @classmethod
    def parse(cls, text: str | None) -> Highest:
        return cls({} if text is None else {key: Seen(*pair) for key, pair in json.loads(text).items()})

    def dump(self) -> str:
        return json.dumps(self._seen, separators=(",", ":"), ensure_ascii=False)

    def __len__(self) -> int:
        return len(self._seen)

    def admit(self, key: str | None, version: int | None, time_ms: int = 0) -> bool:
        """Whether it is higher than every one before. What has no key or no version cannot be compared: no."""
        if key is None or version is None:
            return False
        before = self._seen.get(key)
        if before is not None and version <= before.version:
            return False
        self._seen[key] = Seen(version, time_ms if before is None else max(time_ms, before.time_ms))
        self.changed = True
        return True

    def forget_before(self, time_ms: int) -> None:
        """Keys whose news are all older. Rows as old as these never come here: Spark leaves out what is so late."""
        old = [key for key, seen in self._seen.items() if seen.time_ms < time_ms]
        for key in old:
            del self._seen[key]
        self.changed = self.changed or bool(old)


class Arrival(NamedTuple):
    """A row, as far as the rule looks at it. `row` is whatever it stands for."""

    key: str | None
    version: int | None
    time_ms: int
    row: Any


def judge(arrivals: Iterable[Arrival], highest: Highest) -> Iterator[tuple[Any, bool]]:
    """Every row in its order, with whether it is news."""
    for arrival in arrivals:
        yield arrival.row, highest.admit(arrival.key, arrival.version, arrival.time_ms)


def latest(arrivals: Iterable[Arrival], highest: Highest) -> Iterator[Any]:
    """For each key that has news, the row with the highest version; of equal ones the first."""
    news: dict[str, Any] = {}
    for arrival in arrivals:
        if highest.admit(arrival.key, arrival.version, arrival.time_ms):
            assert arrival.key is not None
            news[arrival.key] = arrival.row
    yield from news.values()
