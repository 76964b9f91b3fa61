"""Who goes next, and when it is enough. Pure but for what the trial does: the clock comes in.

A round has the same number of turns of both sides, in the order A B B A or, every other round, B A A B: whatever grows
or wears off favours nobody. The sample of a side is the median of its turns. Rounds go on until every measure of the
trial is settled, or a bound of rounds or time is reached.

What comes out slower then is measured once more from the beginning, and is slower only if that agrees: among forty
figures there is always one that chance has made worse.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Literal, get_args

from bench.against.pairs import Measure, Pairs

Side = Literal["then", "now"]
SIDES: tuple[Side, ...] = get_args(Side)
Turn = Callable[[Side], Mapping[str, float]]
"""One turn of a side: a value for the key of each measure."""


@dataclass(frozen=True)
class Trial:
    """How a row is measured."""

    measures: Sequence[Measure]
    stage: Callable[[], AbstractContextManager[Turn]]
    """Prepares what both sides need."""
    turns: int = 1
    """Of each side in a round."""
    is_set_up_anew: bool = True
    """For every round: what one process is lucky with (where its memory lies) shall not decide. Otherwise once."""


@dataclass(frozen=True)
class Limits:
    rounds: int = 24
    seconds: float = 60.0


class SideError(Exception):
    """A side cannot do what the trial wants."""

    def __init__(self, side: Side, reason: Exception) -> None:
        super().__init__(f"{side}: {reason}")
        self.side = side
        self.reason = reason


@dataclass
class Result:
    """What both sides did, and for the measures that came out slower what they did the second time."""

    first: list[Pairs]
    again: list[Pairs] = field(default_factory=list)

    def slower(self) -> list[Pairs]:
        confirmed = {pairs.measure.key for pairs in self.again if pairs.is_slower}
        return [pairs for pairs in self.first if pairs.is_slower and pairs.measure.key in confirmed]

    def verdict(self, pairs: Pairs) -> str:
        return "not confirmed" if pairs.is_slower and pairs not in self.slower() else pairs.verdict


def order(number: int, turns: int) -> list[Side]:
    """Whose turns the round of this number has."""
    sides = SIDES if number % 2 == 0 else SIDES[::-1]
    return [side for turn in range(turns) for side in (sides if turn % 2 == 0 else sides[::-1])]


def compare(trial: Trial, limits: Limits, clock_s: Callable[[], float], progress: Callable[[str], None]) -> Result:
    result = Result(take_turns(trial, trial.measures, limits, clock_s, progress))
    suspects = [pairs.measure for pairs in result.first if pairs.is_slower]
    if suspects:
        progress(f"slower, so once more: {', '.join(measure.what for measure in suspects)}")
        result.again = take_turns(trial, suspects, limits, clock_s, progress)
    return result


def take_turns(
    trial: Trial,
    measures: Iterable[Measure],
    limits: Limits,
    clock_s: Callable[[], float],
    progress: Callable[[str], None],
) -> list[Pairs]:
    all_pairs = [Pairs(measure) for measure in measures]
    end_s = clock_s() + limits.seconds
    with ExitStack() as stages:
        turn: Turn | None = None
        for number in range(limits.rounds):
            if turn is None or trial.is_set_up_anew:
                stages.close()
                turn = stages.enter_context(trial.stage())
            taken = _round(turn, order(number, trial.turns))
            for pairs in all_pairs:
                key = pairs.measure.key
                pairs.add(*(statistics.median(values[key] for values in taken[side]) for side in SIDES))
            progress(f"round {number + 1}: " + "; ".join(map(_told, all_pairs)))
            if all(pairs.is_settled for pairs in all_pairs) or clock_s() >= end_s:
                break
    return all_pairs


def _round(turn: Turn, sides: Sequence[Side]) -> dict[Side, list[Mapping[str, float]]]:
    taken: dict[Side, list[Mapping[str, float]]] = {side: [] for side in SIDES}
    for side in sides:
        try:
            taken[side].append(turn(side))
        except Exception as reason:
            raise SideError(side, reason) from reason
    return taken


def _told(pairs: Pairs) -> str:
    return f"{pairs.measure.what} {pairs.then[-1]:,.4g} -> {pairs.now[-1]:,.4g} {pairs.measure.unit}"
