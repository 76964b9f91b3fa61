"""How many offsets a source is behind the end of its topics, from what Spark reports of a batch. Pure.

The names are those of Spark's own Kafka source: minOffsetsBehindLatest, maxOffsetsBehindLatest, avgOffsetsBehindLatest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OffsetsBehind:
    """Over the partitions of one source, or of all sources of a query."""

    min: int
    max: int
    avg: float
    total: int

    def metrics(self) -> dict[str, str]:
        """As Spark's own source reports them: as texts."""
        return {
            "avgOffsetsBehindLatest": str(self.avg),
            "maxOffsetsBehindLatest": str(self.max),
            "minOffsetsBehindLatest": str(self.min),
        }


def offsets_behind(source: Mapping[str, Any]) -> OffsetsBehind | None:
    """Of one entry of a report's `sources`. None if it does not say both how far it is and how far it could be."""
    return _summary(_behind(source))


def offsets_behind_of_all(sources: Sequence[Mapping[str, Any]]) -> OffsetsBehind | None:
    return _summary([one for source in sources for one in _behind(source)])


def lag_by_source(progress: Mapping[str, Any] | None) -> dict[str, OffsetsBehind]:
    """By the source's description; several of the same description are numbered."""
    found: dict[str, OffsetsBehind] = {}
    for number, source in enumerate((progress or {}).get("sources") or ()):
        behind = offsets_behind(source)
        if behind is not None:
            name = str(source.get("description") or "source")
            found[name if name not in found else f"{name} ({number})"] = behind
    return found


def _behind(source: Mapping[str, Any]) -> list[int]:
    end, latest = dict(_offsets(source.get("endOffset"))), dict(_offsets(source.get("latestOffset")))
    return [max(offset - end.get(where, 0), 0) for where, offset in latest.items()] if end else []


def _summary(behind: list[int]) -> OffsetsBehind | None:
    if not behind:
        return None
    return OffsetsBehind(min(behind), max(behind), sum(behind) / len(behind), sum(behind))


def _offsets(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """`{"topic": {"0": 17}}`, as Spark's own source writes it, at any depth; as a text in a query's `lastProgress`."""
    if isinstance(value, str) and not path:
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _offsets(inner, (*path, key))
    elif isinstance(value, int) and not isinstance(value, bool) and path:
        yield path, value
