"""What a proxy did: counters per API and direction, and the report made of them. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from oncelog.faults.frames import api_name
from oncelog.faults.rules import Direction, Rule


@dataclass(slots=True)
class Counts:
    """Frames of one API in one direction."""

    forwarded: int = 0
    """Passed on whole, copies included."""
    dropped: int = 0
    swallowed: int = 0
    """Lost because they came behind one that was dropped or truncated."""
    delayed: int = 0
    duplicated: int = 0
    reordered: int = 0
    """Passed on behind a later one."""
    truncated: int = 0
    cut: int = 0
    """Frames on whose arrival the connection was cut."""
    stalled: int = 0
    refused: int = 0
    """Answered with an error by the proxy itself."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Counts)))


class CountsByApi(dict[str, Counts]):
    """Under Kafka's names; an API that did not pass counts nothing."""

    def __missing__(self, name: str) -> Counts:
        return Counts()


@dataclass(frozen=True, slots=True)
class Report:
    """A snapshot; `str` gives it as text, with the seed that makes it happen again."""

    seed: int
    rules: tuple[Rule, ...]
    connections: int
    requests: CountsByApi
    responses: CountsByApi

    @property
    def total(self) -> Counts:
        return sum((*self.requests.values(), *self.responses.values()), Counts())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seed": self.seed,
            "rules": [str(rule) for rule in self.rules],
            "connections": self.connections,
            "requests": {name: asdict(counts) for name, counts in self.requests.items()},
            "responses": {name: asdict(counts) for name, counts in self.responses.items()},
        }

    def __str__(self) -> str:
        lines = [f"seed={self.seed}, {self.connections} connections, rules: {describe_rules(self.rules)}"]
        for word, by_api in (("requests", self.requests), ("responses", self.responses)):
            lines += [f"  {name} {word}: {_words(counts)}" for name, counts in sorted(by_api.items())]
        return "\n".join(lines)


class Tally:
    """The counters while they run."""

    def __init__(self) -> None:
        self.connections = 0
        self._counts: dict[tuple[Direction, int], Counts] = {}

    def of(self, direction: Direction, api_key: int) -> Counts:
        counts = self._counts.get((direction, api_key))
        if counts is None:
            counts = self._counts[direction, api_key] = Counts()
        return counts

    def report(self, seed: int, rules: tuple[Rule, ...]) -> Report:
        return Report(
            seed, rules, self.connections, self._by_name(Direction.REQUEST), self._by_name(Direction.RESPONSE)
        )

    def _by_name(self, direction: Direction) -> CountsByApi:
        return CountsByApi(
            (api_name(key), replace(counts)) for (way, key), counts in self._counts.items() if way is direction
        )


def describe_rules(rules: tuple[Rule, ...]) -> str:
    return "; ".join(map(str, rules)) or "none"


def _words(counts: Counts) -> str:
    return ", ".join(f"{value} {name}" for name, value in asdict(counts).items() if value) or "none"
