"""Which names a regular expression means, with a bound on the work.

Anybody sends whatever expression he likes, so matching must not backtrack: the expression becomes an automaton that
looks at every character once. Its states are built as names need them, and forgotten when they become too many.

Building a state may mean to look at every step of the automaton, and some expressions (`.*a.{200}`) need a new state
for nearly every character of every name. So the work is counted, in steps looked at, about a microsecond each: what
one name takes is bounded here, what many take together by whoever asks (`resolving`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from oncelog.coordinator.consumer.regex_syntax import (
    ALPHABET,
    At,
    Choice,
    Node,
    OneOf,
    Repeat,
    Sequence,
    Where,
    parse,
)
from oncelog.errors import InvalidRegularExpression

MAX_STEPS = 1_000
"""The size of an automaton; an expression with larger numbers of repetitions is refused. `.{1,249}` has 500."""

MAX_COMPILED = 4 * MAX_STEPS
"""How many parts of an expression are looked at to build it: those that match nothing (`(){1000}`) add no step."""

PART_WORK = 2
"""What each character and each part of an expression takes until it is an automaton."""

MAX_NAME_WORK = 10_000
"""What one name may take, some ten milliseconds. An expression of people takes a few steps for each character of the
first names, and none for later ones, whose states are there."""

MAX_KEPT_STEPS = 20_000
"""How many steps the states that are kept may hold together: about a megabyte."""

KEPT_PATTERNS = 64
SHOWN_CHARACTERS = 100

_WORD = frozenset(character for character in ALPHABET if character.isalnum() or character == "_")


class _Go(NamedTuple):
    """Without reading a character, from here on at each of these steps."""

    to: tuple[int, ...]


class _Check(NamedTuple):
    where: Where
    to: int


class _Read(NamedTuple):
    characters: frozenset[str]
    to: int


class _State:
    """The steps that a name may have led to, before the next character is seen."""

    __slots__ = ("accepts", "after_word", "following", "is_start", "steps")

    def __init__(self, steps: frozenset[int], *, is_start: bool, after_word: bool) -> None:
        self.steps = steps
        self.is_start = is_start
        self.after_word = after_word
        self.following: dict[str, _State] = {}
        self.accepts: bool | None = None
        """Whether a name may end here; None if no name did yet."""


_MATCH = 0


class TopicPattern:
    """Every method that matches raises InvalidRegularExpression where a name takes too much work."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self.work = 0
        """Steps that were looked at to build states, ever."""
        self._compiled = 0
        self._steps: list[_Go | _Check | _Read] = [_Go(())]
        self._start = _State(frozenset((self._compile(parse(expression), _MATCH),)), is_start=True, after_word=False)
        self._states: dict[tuple[frozenset[int], bool], _State] = {}
        self._kept_steps = 0
        self._reads = {at: step.to for at, step in enumerate(self._steps) if type(step) is _Read}
        """Where each step that reads a character leads."""
        self._readers: dict[str, frozenset[int]] = {}
        """By character, the steps that read it: at most as many as names have characters."""
        self.uncounted = PART_WORK * (len(expression) + self._compiled)
        """What it took to make. Whoever bounds the work counts it, once."""

    @staticmethod
    @lru_cache(maxsize=KEPT_PATTERNS)
    def of(expression: str) -> TopicPattern:
        return TopicPattern(expression)

    def matches(self, name: str) -> bool:
        """The expression means the whole name."""
        state = self._start
        allowed = self.work + MAX_NAME_WORK
        for character in name:
            following = state.following.get(character)
            if following is None:
                if self.work > allowed:
                    raise too_much_work(self._expression)
                following = self._advance(state, character)
            state = following
            if not state.steps:
                return False
        if state.accepts is None:
            state.accepts = _MATCH in self._reachable(state, None)
        return state.accepts

    def _advance(self, state: _State, character: str) -> _State:
        reading = self._reachable(state, character) & self._readers_of(character)
        ahead = frozenset(map(self._reads.__getitem__, reading))
        after_word = character in _WORD
        following = self._states.get((ahead, after_word))
        if following is None:
            if self._kept_steps >= MAX_KEPT_STEPS:
                self._forget()
            self._kept_steps += 1 + len(ahead)
            following = self._states[ahead, after_word] = _State(ahead, is_start=False, after_word=after_word)
        state.following[character] = following
        return following

    def _forget(self) -> None:
        for state in (self._start, *self._states.values()):
            state.following = {}
        self._states = {}
        self._kept_steps = 0

    def _reachable(self, state: _State, character: str | None) -> set[int]:
        """The steps to which a state leads without reading; None: the name is at its end."""
        holds = {
            Where.START: state.is_start,
            Where.END: character is None,
            Where.BOUNDARY: state.after_word != (character in _WORD),
            Where.NO_BOUNDARY: state.after_word == (character in _WORD),
        }
        found = set(state.steps)
        waiting = list(found)
        while waiting:
            step = self._steps[waiting.pop()]
            self.work += 1
            if type(step) is _Go:
                for new in step.to:
                    if new not in found:
                        found.add(new)
                        waiting.append(new)
            elif type(step) is _Check and holds[step.where] and step.to not in found:
                found.add(step.to)
                waiting.append(step.to)
        return found

    def _readers_of(self, character: str) -> frozenset[int]:
        readers = self._readers.get(character)
        if readers is None:
            found = (at for at, step in enumerate(self._steps) if type(step) is _Read and character in step.characters)
            readers = self._readers[character] = frozenset(found)
        return readers

    def _compile(self, node: Node, then: int) -> int:
        """The first step of what matches the node and goes on at `then`."""
        self._compiled += 1
        if self._compiled > MAX_COMPILED:
            raise _too_large()
        match node:
            case OneOf(characters):
                return self._add(_Read(characters, then))
            case At(where):
                return self._add(_Check(where, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Choice(options):
                return self._add(_Go(tuple(self._compile(option, then) for option in options)))
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, then)

    def _compile_repeat(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self._add(_Go(()))
            self._steps[loop] = _Go((self._compile(part, loop), then))
            first = loop
        else:
            first = then
            for _ in range(most - least):
                first = self._add(_Go((self._compile(part, first), then)))
        for _ in range(least):
            first = self._compile(part, first)
        return first

    def _add(self, step: _Go | _Check | _Read) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise _too_large()
        self._steps.append(step)
        return len(self._steps) - 1


def _too_large() -> InvalidRegularExpression:
    return InvalidRegularExpression(
        f"the regular expression takes more than {MAX_STEPS} steps to match, with every repetition written out; use"
        " smaller numbers in {}, or * and +, and fewer alternatives"
    )


def too_much_work(expression: str) -> InvalidRegularExpression:
    shown = expression if len(expression) <= SHOWN_CHARACTERS else f"{expression[:SHOWN_CHARACTERS]}..."
    return InvalidRegularExpression(
        f"the regular expression {shown!r} takes too much work to match the topics' names; use fewer repetitions behind"
        " each other (.* before .{100}, say), smaller numbers in {}, or name the topics"
    )
