"""What goes wrong, and which frame it hits. Pure: chance comes in as functions that return numbers in [0, 1).

A `Rule` is a frozen value with a text form (`drop_response Produce probability=0.02`). A `Script` holds the rules of
one proxy and what is left of their limits; a `ConnectionScript` judges the frames of one connection. Every rule has
its own source of chance per connection, so its decisions depend on the seed and on the order of that connection's
frames alone: not on time, not on other connections, not on the other rules. Only `limit` is shared by all connections.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypedDict, Unpack

from oncelog.errors import ERRORS_BY_CODE, NONE, InvalidConfig
from oncelog.faults.refusals import is_refusable
from oncelog.wire.api import ApiKey

MAX_MS = 10 * 60 * 1000
"""The longest time a rule may name: whatever a rule holds back, it holds back for a bounded time."""

DEFAULT_CUT_AFTER_MS = 20
"""How long a connection outlives a dropped frame: time for what was already under way in the other direction."""

DEFAULT_WITHIN_MS = 100
"""How long a frame waits at most for the one that is to overtake it."""

API_NAMES = {key.schema_prefix: key for key in ApiKey}
ERROR_CODES = {error.name: error.code for error in ERRORS_BY_CODE.values()}

Draw = Callable[[], float]
Milliseconds = int | tuple[int, int]


class Direction(Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Fault(Enum):
    DROP = "drop"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    TRUNCATE = "truncate"
    CUT = "cut"
    STALL = "stall"
    REFUSE = "refuse"


FAULTS_OF_THE_LINE = frozenset({Fault.DELAY, Fault.CUT, Fault.STALL})
"""They mean the same whichever frame sets them off, so their names do not say request or response."""

MS_NAMES = {
    Fault.DROP: "cut_after_ms",
    Fault.DELAY: "ms",
    Fault.REORDER: "within_ms",
    Fault.STALL: "ms",
}
"""What the time of a rule is called; faults without one are not here."""


class When(TypedDict, total=False):
    """Which of the frames that a rule is about it hits: all, if nothing is said."""

    probability: float
    """Each with this probability."""
    every: int
    """Every n-th of a connection."""
    limit: int
    """At most this many over all connections, then never again."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of trouble for some frames. Made by the methods named after the faults, or from text by `parse`."""

    fault: Fault
    direction: Direction
    apis: frozenset[ApiKey] = frozenset()
    """Empty: all, also those that this library does not know."""
    probability: float = 1.0
    every: int | None = None
    limit: int | None = None
    ms: tuple[int, int] = (0, 0)
    """From and to, both inclusive; every hit draws its own."""
    error: str = ""
    """Kafka's name of the error with which a request is refused; empty for every other fault."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise InvalidConfig(f"probability={self.probability} of {self.name} is not between 0 and 1")
        if self.every is not None and self.probability != 1.0:
            raise InvalidConfig(f"{self.name} has both every and probability; choose one")
        for word, value in (("every", self.every), ("limit", self.limit)):
            if value is not None and value < 1:
                raise InvalidConfig(f"{word}={value} of {self.name} is less than 1")
        self._check_error()
        if self.fault not in MS_NAMES:
            if self.ms != (0, 0):
                raise InvalidConfig(f"{self.name} has no time, and ms={self.ms} no meaning")
            return
        shortest, longest = self.ms
        if not 0 <= shortest <= longest <= MAX_MS:
            raise InvalidConfig(
                f"{MS_NAMES[self.fault]}={_range_text(self.ms)} of {self.name} is not a time: write N or (FROM, TO) in "
                f"milliseconds, at most {MAX_MS}"
            )

    def _check_error(self) -> None:
        if self.fault is not Fault.REFUSE:
            if self.error:
                raise InvalidConfig(f"{self.name} refuses nothing, and error={self.error} has no meaning")
            return
        if self.error not in ERROR_CODES:
            raise InvalidConfig(f"error={self.error} of {self.name} is unknown{_nearest(self.error, ERROR_CODES)}")
        if not self.apis:
            raise InvalidConfig(f"{self.name} needs the APIs whose requests it refuses, such as EndTxn")
        for api in self.apis:
            if not is_refusable(api):
                raise InvalidConfig(f"{self.name} cannot refuse {api.schema_prefix}: some of its answers have no error")

    @classmethod
    def drop_request(cls, *apis: str, cut_after_ms: Milliseconds = DEFAULT_CUT_AFTER_MS, **when: Unpack[When]) -> Rule:
        """The broker gets neither this request nor those behind it; answers pass until the connection is cut."""
        return cls(Fault.DROP, Direction.REQUEST, _api_keys(apis), ms=_range(cut_after_ms), **when)

    @classmethod
    def drop_response(cls, *apis: str, cut_after_ms: Milliseconds = DEFAULT_CUT_AFTER_MS, **when: Unpack[When]) -> Rule:
        """The client gets neither this answer nor those behind it; requests pass until the connection is cut."""
        return cls(Fault.DROP, Direction.RESPONSE, _api_keys(apis), ms=_range(cut_after_ms), **when)

    @classmethod
    def delay(cls, *apis: str, ms: Milliseconds, on: str = "request", **when: Unpack[When]) -> Rule:
        """The frame waits, and with it everything behind it in its direction."""
        return cls(Fault.DELAY, _direction(on), _api_keys(apis), ms=_range(ms), **when)

    @classmethod
    def duplicate_request(cls, *apis: str, **when: Unpack[When]) -> Rule:
        """The broker gets the request twice; the client gets the first answer only."""
        return cls(Fault.DUPLICATE, Direction.REQUEST, _api_keys(apis), **when)

    @classmethod
    def duplicate_response(cls, *apis: str, **when: Unpack[When]) -> Rule:
        """The client gets the answer twice, which no correct broker would do."""
        return cls(Fault.DUPLICATE, Direction.RESPONSE, _api_keys(apis), **when)

    @classmethod
    def reorder_requests(cls, *apis: str, within_ms: Milliseconds = DEFAULT_WITHIN_MS, **when: Unpack[When]) -> Rule:
        """The next request of the connection overtakes this one; the client gets the answers in its own order."""
        return cls(Fault.REORDER, Direction.REQUEST, _api_keys(apis), ms=_range(within_ms), **when)

    @classmethod
    def reorder_responses(cls, *apis: str, within_ms: Milliseconds = DEFAULT_WITHIN_MS, **when: Unpack[When]) -> Rule:
        """The next answer overtakes this one, which no correct broker would do."""
        return cls(Fault.REORDER, Direction.RESPONSE, _api_keys(apis), ms=_range(within_ms), **when)

    @classmethod
    def truncate_request(cls, *apis: str, **when: Unpack[When]) -> Rule:
        """The broker gets the beginning of the request, and then the end of the connection."""
        return cls(Fault.TRUNCATE, Direction.REQUEST, _api_keys(apis), **when)

    @classmethod
    def truncate_response(cls, *apis: str, **when: Unpack[When]) -> Rule:
        """The client gets the beginning of the answer, and then the end of the connection."""
        return cls(Fault.TRUNCATE, Direction.RESPONSE, _api_keys(apis), **when)

    @classmethod
    def cut(cls, *apis: str, on: str = "request", **when: Unpack[When]) -> Rule:
        """The connection breaks where the frame arrives: it is lost, and so is all that is under way."""
        return cls(Fault.CUT, _direction(on), _api_keys(apis), **when)

    @classmethod
    def stall(cls, *apis: str, ms: Milliseconds, on: str = "request", **when: Unpack[When]) -> Rule:
        """From the frame on nothing passes in either direction for a while; the connection stays open."""
        return cls(Fault.STALL, _direction(on), _api_keys(apis), ms=_range(ms), **when)

    @classmethod
    def refuse_request(cls, *apis: str, error: str, **when: Unpack[When]) -> Rule:
        """The broker does not get the request; the client gets Kafka's error of this name for all it asked."""
        return cls(Fault.REFUSE, Direction.REQUEST, _api_keys(apis), error=error, **when)

    @classmethod
    def parse(cls, text: str) -> Rule:
        """The rule that `str(rule)` wrote: `drop_response Produce,Fetch probability=0.02`. Raises InvalidConfig.

        A number alone is a probability, and dashes do as well: `drop-response Produce 0.02`.
        """
        name, *words = text.split() or [""]
        name = name.replace("-", "_")
        words = [f"probability={word}" if _is_number(word) else word for word in words]
        if name not in RULE_NAMES:
            near, names = _nearest(name, RULE_NAMES), ", ".join(RULE_NAMES)
            raise InvalidConfig(f"unknown fault {name!r}{near}; there are {names}")
        apis = [api for word in words if "=" not in word for api in word.split(",")]
        options = dict(_option(name, word) for word in words if "=" in word)
        try:
            rule: Rule = getattr(cls, name)(*apis, **options)
        except TypeError as error:  # an option that there is not, or a time that is missing
            raise InvalidConfig(f"{text!r}: {str(error).partition('() ')[2]}") from None
        return rule

    @property
    def name(self) -> str:
        """The method that makes such a rule."""
        if self.fault in FAULTS_OF_THE_LINE:
            return self.fault.value
        plural = "s" if self.fault is Fault.REORDER else ""
        return f"{self.fault.value}_{self.direction.value}{plural}"

    def __str__(self) -> str:
        words = [self.name]
        if self.apis:
            words.append(",".join(sorted(api.schema_prefix for api in self.apis)))
        if self.fault in FAULTS_OF_THE_LINE and self.direction is Direction.RESPONSE:
            words.append("on=response")
        if self.fault in MS_NAMES:
            words.append(f"{MS_NAMES[self.fault]}={_range_text(self.ms)}")
        if self.error:
            words.append(f"error={self.error}")
        if self.probability != 1.0:
            words.append(f"probability={self.probability}")
        words += [f"{word}={value}" for word, value in (("every", self.every), ("limit", self.limit)) if value]
        return " ".join(words)

    def is_about(self, direction: Direction, api_key: int) -> bool:
        return self.direction is direction and (not self.apis or api_key in self.apis)


RULE_NAMES = tuple(name for name in vars(Rule) if name.partition("_")[0] in {fault.value for fault in Fault})
"""The faults as users write them."""


class Verdict(NamedTuple):
    """What happens to one frame: its delays in sum, and the first other fault that hit it."""

    delay_ms: int = 0
    fault: Fault | None = None
    ms: int = 0
    """The fault's time, if it has one."""
    share: float = 0.0
    """How much of the frame a truncation lets through."""
    error_code: int = NONE
    """With which the frame is refused."""


UNHARMED = Verdict()


class Script:
    """The rules of one proxy. `heal` ends them all."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.healed = False
        self._hits_left = [rule.limit for rule in self.rules]

    def connection(self, draws: Sequence[Draw]) -> ConnectionScript:
        """The judge of a new connection; one source of chance for each rule."""
        return ConnectionScript(self, draws)

    def heal(self) -> None:
        """From now on no rule applies. What was already decided still happens."""
        self.healed = True

    def take_hit(self, index: int) -> bool:
        """Use up one hit of a rule; False if its limit is reached."""
        left = self._hits_left[index]
        if left is None:
            return True
        if left == 0:
            return False
        self._hits_left[index] = left - 1
        return True


class ConnectionScript:
    """Judges the frames of one connection, each exactly once and in the order of their arrival."""

    def __init__(self, script: Script, draws: Sequence[Draw]) -> None:
        self._script = script
        self._chances = [
            _Chance(index, rule, draw) for index, (rule, draw) in enumerate(zip(script.rules, draws, strict=True))
        ]

    def judge(self, direction: Direction, api_key: int) -> Verdict:
        verdict = UNHARMED
        if self._script.healed:
            return verdict
        for chance in self._chances:
            rule = chance.rule
            # Chance is asked even where the hit will not count: what later frames meet must not depend on it.
            if not rule.is_about(direction, api_key) or not chance.hits():
                continue
            ms, share = chance.amounts()
            is_delay = rule.fault is Fault.DELAY
            if (verdict.fault is not None and not is_delay) or not self._script.take_hit(chance.index):
                continue
            if is_delay:
                verdict = verdict._replace(delay_ms=verdict.delay_ms + ms)
            else:
                verdict = Verdict(verdict.delay_ms, rule.fault, ms, share, ERROR_CODES.get(rule.error, NONE))
        return verdict


class _Chance:
    """A rule on one connection: how many of its frames came, and what chance says to the next."""

    __slots__ = ("_draw", "_seen", "index", "rule")

    def __init__(self, index: int, rule: Rule, draw: Draw) -> None:
        self.index = index
        self.rule = rule
        self._draw = draw
        self._seen = 0

    def hits(self) -> bool:
        self._seen += 1
        if self.rule.every is not None:
            return self._seen % self.rule.every == 0
        return self._draw() < self.rule.probability

    def amounts(self) -> tuple[int, float]:
        shortest, longest = self.rule.ms
        return shortest + int(self._draw() * (longest - shortest + 1)), self._draw()


def _api_keys(names: Iterable[str]) -> frozenset[ApiKey]:
    for name in names:
        if name not in API_NAMES:
            raise InvalidConfig(f"unknown API {name!r}{_nearest(name, API_NAMES)}")
    return frozenset(API_NAMES[name] for name in names)


def _direction(word: str) -> Direction:
    try:
        return Direction(word)
    except ValueError:
        raise InvalidConfig(f"on={word!r} is neither 'request' nor 'response'") from None


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _range(ms: Milliseconds) -> tuple[int, int]:
    return ms if isinstance(ms, tuple) else (ms, ms)


def _range_text(ms: tuple[int, int]) -> str:
    return str(ms[0]) if ms[0] == ms[1] else f"{ms[0]}-{ms[1]}"


def _is_number(word: str) -> bool:
    return word[:1].isdecimal() or word[:1] == "."


def _option(rule_name: str, word: str) -> tuple[str, object]:
    """`ms=5-50` as a keyword argument."""
    key, _, text = word.partition("=")
    try:
        if key in ("on", "error"):
            return key, text
        if key == "probability":
            return key, float(text)
        first, dash, last = text.partition("-")
        if dash and key.endswith("ms"):
            return key, (int(first), int(last))
        return key, int(text)
    except ValueError:
        raise InvalidConfig(f"{word} of {rule_name} is not a number") from None
