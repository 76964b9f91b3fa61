"""Offsets by topic and partition, in the shape that Spark's own connector writes: `{"orders": {"0": 23, "1": 345}}`.

Owns the way between that JSON and `{TopicPartition: number}`. People read it in a checkpoint and write it into options,
and the sink digests it. What a number means is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from oncelog.types import TopicPartition

Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]

MAX_PARTITION = 2**31 - 1


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """In order, so that the same offsets are always the same text."""
    found: Json = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return found


def from_json(found: Any) -> Offsets:
    """Raises ValueError, which says what was expected."""
    if not isinstance(found, Mapping):
        raise ValueError('a JSON object by topic, such as {"orders": {"0": 23}}')
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'a JSON object by partition for topic {topic!r}, such as {{"0": 23}}')
        for partition, number in partitions.items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise ValueError(f"a whole number for partition {partition} of topic {topic!r}, not {number!r}")
            offsets[TopicPartition(topic, _partition(topic, partition))] = number
    return offsets


def parse(text: str) -> Offsets:
    """Raises ValueError."""
    return from_json(_loads(text))


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """`{"orders": [0, 1]}`. Raises ValueError."""
    found = _loads(text)
    if not isinstance(found, Mapping) or not found:
        raise ValueError('a JSON object of partitions by topic, such as {"orders": [0, 1]}')
    chosen = set()
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(f"a list of partitions for topic {topic!r}, such as [0, 1]")
        chosen |= {TopicPartition(topic, _partition(topic, one)) for one in partitions}
    return frozenset(chosen)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"JSON ({error})") from None


def _partition(topic: str, given: Any) -> int:
    try:
        number = int(given) if not isinstance(given, (bool, float)) else -1
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= MAX_PARTITION:
        raise ValueError(f"numbers of partitions for topic {topic!r}, not {given!r}")
    return number
