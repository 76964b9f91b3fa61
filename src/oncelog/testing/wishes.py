"""What a test asks for with `@pytest.mark.oncelog(...)`. Pure.

Markers of a test, its class and its module count together; where two name the same, the nearer one wins.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from oncelog.errors import InvalidConfig

if TYPE_CHECKING:
    from oncelog.faults.rules import Rule


@dataclass(frozen=True, slots=True)
class Wishes:
    faults: Sequence[str | Rule] = ()
    """What `oncelog_proxy` breaks: rules, or their text as `oncelog faults --rule` takes it."""
    seed: int | None = None
    """Of the proxy, in place of the one that comes from the test's id."""
    partitions: int | None = None
    """Of `oncelog_topic`, and of `oncelog_topics` unless the call says otherwise; None: as the broker's default."""
    configs: Mapping[str, object] = field(default_factory=dict)
    """Of these topics, under Kafka's names."""
    producer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `oncelog_producer`."""
    consumer: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `oncelog_consumer`."""

    @staticmethod
    def of(markers: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> Wishes:
        """From the arguments of the markers, the nearest first. Raises InvalidConfig."""
        merged: dict[str, Any] = {}
        for positional, named in markers:
            if positional:
                raise InvalidConfig(f"@pytest.mark.oncelog takes named arguments only ({', '.join(NAMES)})")
            for name, value in named.items():
                _check(name, value)
                merged.setdefault(name, value)
        return Wishes(**merged)

    @property
    def rules(self) -> list[Rule]:
        """Raises InvalidConfig."""
        from oncelog.faults.rules import Rule

        return [Rule.parse(fault) if isinstance(fault, str) else fault for fault in self.faults]


NAMES = tuple(each.name for each in fields(Wishes))


def _check(name: str, value: object) -> None:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(NAMES)}"
        raise InvalidConfig(f"@pytest.mark.oncelog: unknown argument {name!r}{hint}")
    if name == "faults" and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise InvalidConfig(f"@pytest.mark.oncelog: faults is a list of rules, not {value!r}")
    if name in ("configs", "producer", "consumer") and not isinstance(value, Mapping):
        raise InvalidConfig(f"@pytest.mark.oncelog: {name} is a dict of settings, not {value!r}")
    if name in ("seed", "partitions") and not (value is None or type(value) is int):
        raise InvalidConfig(f"@pytest.mark.oncelog: {name} is a whole number, not {value!r}")
