"""Where reading begins and ends, as a user says it: earliest, latest, offsets, or moments in time.

A `Bound` is what the options say. `places` applies it to the partitions that there are, `questions` is what the brokers
must be asked for that, and `settle` makes offsets of the answers. Nothing here asks a broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET
from oncelog.errors import OncelogError
from oncelog.spark.options import BadOption, Options
from oncelog.spark.source.offsets import Offsets, parse
from oncelog.types import TopicPartition

MAX_NAMED_PARTITIONS = 10
"""So many partitions an error names."""


class NoRecordThatYoung(OncelogError):
    """Reading is to begin at a moment after which a partition has no record yet."""


class Kind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    MOMENT = auto()
    """The first record that is not older."""


class Place(NamedTuple):
    kind: Kind
    number: int = 0
    """An offset, or milliseconds since 1970."""


EARLIEST = Place(Kind.EARLIEST)
LATEST = Place(Kind.LATEST)
_NAMED = {"earliest": EARLIEST, "latest": LATEST}
_NUMBERED = {EARLIEST_OFFSET: EARLIEST, LATEST_OFFSET: LATEST}


@dataclass(frozen=True, slots=True)
class Bound:
    option: str
    """The option that said so, for errors."""
    everywhere: Place | None = None
    listed: Mapping[TopicPartition, Place] = field(default_factory=dict)
    is_latest_unless_found: bool = False
    """Where no record is as young as a moment, the latest offset is meant; otherwise that is an error."""

    def places(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """Raises BadOption if the list is not one of exactly these partitions."""
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        missing, foreign = set(partitions) - self.listed.keys(), self.listed.keys() - set(partitions)
        if missing or foreign:
            raise BadOption(
                f"the option {self.option!r} must name every partition that is read, and no other:"
                f" it lacks {named(missing)}, and has too many: {named(foreign)}"
            )
        return dict(self.listed)


def questions(places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    """What ListOffsets must be asked; a given offset needs no question."""
    asked = {Kind.EARLIEST: EARLIEST_OFFSET, Kind.LATEST: LATEST_OFFSET}
    return {
        partition: asked.get(place.kind, place.number)
        for partition, place in places.items()
        if place.kind is not Kind.OFFSET
    }


def settle(
    bound: Bound, places: Mapping[TopicPartition, Place], found: Mapping[TopicPartition, int | None], latest: Offsets
) -> Offsets:
    """`found` answers the questions, None where no record is as young. Raises NoRecordThatYoung."""
    offsets: Offsets = {}
    for partition, place in places.items():
        offset = place.number if place.kind is Kind.OFFSET else found[partition]
        if offset is None and not bound.is_latest_unless_found:
            raise NoRecordThatYoung(
                f"partition {partition} has no record at or after {place.number} (milliseconds since 1970), where"
                f" {bound.option!r} wants to begin: choose an earlier moment, or set"
                " startingOffsetsByTimestampStrategy=latest to begin after the last record"
            )
        offsets[partition] = latest[partition] if offset is None else offset
    return offsets


# --- from options -----------------------------------------------------------------------------------------------------


def starting(options: Options, default: Place, refused: Place | None) -> Bound:
    """The most precise option wins, as in Spark: a moment for all, moments by partition, offsets."""
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return _bound(options, "starting", default, refused, is_latest_unless_found=strategy == "latest")


def ending(options: Options) -> Bound:
    return _bound(options, "ending", LATEST, EARLIEST, is_latest_unless_found=True)


def _bound(
    options: Options, side: str, default: Place, refused: Place | None, *, is_latest_unless_found: bool
) -> Bound:
    moment = options.integer(f"{side}Timestamp")
    if moment is not None:
        place = Place(Kind.MOMENT, moment)
        return Bound(f"{side}Timestamp", place, is_latest_unless_found=is_latest_unless_found)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        listed = {one: Place(Kind.MOMENT, number) for one, number in _listed(options, name, lowest=0).items()}
        return Bound(name, listed=listed, is_latest_unless_found=is_latest_unless_found)
    return _by_offsets(options, f"{side}Offsets", default, refused)


def _by_offsets(options: Options, name: str, default: Place, refused: Place | None) -> Bound:
    text = options.optional(name)
    if text is None:
        return Bound(name, default)
    place = _NAMED.get(text.lower())
    if place is not None:
        _check_allowed(options, name, place, refused)
        return Bound(name, place)
    listed = {
        partition: _NUMBERED.get(number, Place(Kind.OFFSET, number))
        for partition, number in _listed(options, name, lowest=EARLIEST_OFFSET).items()
    }
    for place in listed.values():
        _check_allowed(options, name, place, refused)
    return Bound(name, listed=listed)


def _check_allowed(options: Options, name: str, place: Place, refused: Place | None) -> None:
    if place == refused:
        raise BadOption(
            f"the option {name!r} of {options.what} cannot be {place.kind.name.lower()} in a batch query, not for one"
            " partition either: it would read nothing"
        )


def _listed(options: Options, name: str, *, lowest: int) -> Offsets:
    try:
        listed = parse(options.text(name))
    except ValueError as expected:
        raise options.wrong(name, str(expected)) from None
    if not listed or min(listed.values()) < lowest:
        raise options.wrong(name, f"JSON with a number of at least {lowest} for each partition")
    return listed


def named(partitions: Collection[TopicPartition]) -> str:
    """For errors."""
    first = sorted(partitions)[:MAX_NAMED_PARTITIONS]
    rest = len(partitions) - len(first)
    return (", ".join(map(str, first)) or "none") + (f" and {rest} more" if rest else "")
