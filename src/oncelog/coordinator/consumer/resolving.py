"""What regular expressions mean among the topics of the cluster, found out in bounded parts.

Kafka resolves them in a thread of its own. Here the work has a measure (`regex`), and whoever asks brings an allowance
of it: what is left over goes on where it stopped, with the next one. Each name is matched against an expression once,
however many groups and members use it, so that a new topic costs one match for each expression.

An expression that takes too much is given up: members that use it hear why, and what it was found to mean before stays.
So it goes as well with one in the log that an older oncelog accepted and this one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncelog.coordinator.consumer.regex import TopicPattern, too_much_work
from oncelog.errors import InvalidRegularExpression

ALLOWED_WORK = 5_000
"""What is done at a time: some milliseconds, and what one name takes."""

MAX_EVALUATION_WORK = 50_000
"""What it may take to match an expression against all the names that it has not seen yet, beyond looking the names up.
Expressions of people take some hundreds for thousands of topics."""

CHARACTERS_PER_WORK = 16
"""So many characters of a name are looked up, in states that are there, in the time of one step."""

FORGET_FROM = 1_000
"""With fewer expressions than this, nobody looks for those that are not used any more."""


class Allowance:
    """How much may be done before everybody else has a turn."""

    def __init__(self, work: int = ALLOWED_WORK) -> None:
        self._left = work

    @property
    def is_used_up(self) -> bool:
        return self._left <= 0

    def use(self, work: int) -> None:
        self._left -= work


class _Resolution:
    __slots__ = ("failure", "known_to", "matched", "unseen", "work")

    def __init__(self) -> None:
        self.known_to = 0
        """Names with a higher number were not looked at yet."""
        self.unseen: list[str] = []
        self.matched: set[str] = set()
        self.work = 0
        """Since the last time that all names were known."""
        self.failure: str | None = None
        """Why it was given up."""


class Resolutions:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """Of each topic's name, in the order in which they were first seen."""
        self._last_number = 0
        self._found: dict[str, _Resolution] = {}
        self._forget_at = FORGET_FROM

    def look(self, names: Iterable[str]) -> None:
        """The topics that there are now."""
        found = dict.fromkeys(names)
        gone = self._numbers.keys() - found.keys()
        if gone:
            for one in self._found.values():
                one.matched -= gone  # else it would grow as long as topics come and go
            self._numbers = {name: number for name, number in self._numbers.items() if name in found}
        for name in found:
            if name not in self._numbers:
                self._last_number += 1
                self._numbers[name] = self._last_number

    def resolve(self, expression: str, allowance: Allowance) -> bool:
        """Go on with an expression; whether nothing is left to do. Raises InvalidRegularExpression where it is given
        up, once: thereafter there is nothing to do."""
        one = self._found.get(expression)
        if one is None:
            one = self._found[expression] = _Resolution()
        if one.failure is None and (one.unseen or one.known_to < self._last_number):
            try:
                self._go_on(one, expression, allowance)
            except InvalidRegularExpression as error:
                one.failure, one.unseen = str(error), []
                raise
        return not one.unseen

    def _go_on(self, one: _Resolution, expression: str, allowance: Allowance) -> None:
        pattern = TopicPattern.of(expression)
        allowance.use(pattern.uncounted)
        pattern.uncounted = 0
        for name in reversed(self._numbers):
            if self._numbers[name] <= one.known_to:
                break
            one.unseen.append(name)
        one.known_to = self._last_number
        while one.unseen:
            name, before = one.unseen.pop(), pattern.work
            if name in self._numbers and pattern.matches(name):
                one.matched.add(name)
            done = pattern.work - before
            allowance.use(1 + len(name) // CHARACTERS_PER_WORK + done)
            one.work += done
            if one.work > MAX_EVALUATION_WORK:
                raise too_much_work(expression)
            if allowance.is_used_up:  # looked at last: each time at least one name is done
                break
        if not one.unseen:
            one.work = 0

    def topics(self, expression: str) -> frozenset[str] | None:
        """What it means; None if that is not known."""
        one = self._found.get(expression)
        if one is None or one.failure is not None:
            return None
        return frozenset(one.matched)

    def check(self, expression: str) -> None:
        """Raises InvalidRegularExpression, if it was given up."""
        one = self._found.get(expression)
        if one is not None and one.failure is not None:
            raise InvalidRegularExpression(one.failure)

    def forget_unused(self, used: Callable[[], set[str]]) -> None:
        """Now and then, as more become known."""
        if len(self._found) >= self._forget_at:
            keep = used()
            self._found = {expression: one for expression, one in self._found.items() if expression in keep}
            self._forget_at = max(FORGET_FROM, 2 * len(self._found))
