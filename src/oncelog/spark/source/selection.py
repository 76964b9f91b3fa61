"""Which partitions a query reads: by the names of topics, by a pattern of names, or one by one.

Owns what each way chooses from what is there. Asks no broker; whether a missing topic is a mistake or a loss is decided
by who asks.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from oncelog.spark.options import BadOption, Options
from oncelog.spark.source.offsets import parse_assignment
from oncelog.types import TopicPartition

NAMES = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str

    def matching(self, topics: Collection[str]) -> tuple[str, ...]:
        """The whole name must match, as in Java."""
        return tuple(sorted(topic for topic in topics if re.fullmatch(self.pattern, topic)))


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: frozenset[TopicPartition]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({partition.topic for partition in self.partitions}))


Selection = Subscribe | SubscribePattern | Assign


def selection_of(options: Options) -> Selection:
    """Raises BadOption unless exactly one way is given."""
    given = [name for name in NAMES if name in options]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise BadOption(f"{options.what} needs exactly one of the options {', '.join(NAMES)}; found {found}")
    (name,) = given
    if name == "subscribe":
        return Subscribe(tuple(sorted(options.names(name))))
    text = options.text(name)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise options.wrong(name, f"a regular expression ({error})") from None
        return SubscribePattern(text)
    try:
        return Assign(parse_assignment(text))
    except ValueError as expected:
        raise options.wrong(name, str(expected)) from None
