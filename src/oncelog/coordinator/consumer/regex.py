"""Which topics a regular expression means, in a time that grows with the length of their names only.

A consumer sends whatever expression it likes, so matching must not backtrack: the expression becomes an automaton that
looks at every character once. Its states are built as names need them, and forgotten when they become too many.
"""

from __future__ import annotations

from collections.abc import Iterable
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

MAX_STEPS = 5_000
"""The size of an automaton; an expression with larger numbers of repetitions is refused."""

MAX_STATES = 1_000
"""How many states are kept at a time."""

KEPT_PATTERNS = 64

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
    def __init__(self, expression: str) -> None:
        self._steps: list[_Go | _Check | _Read] = [_Go(())]
        self._start = _State(frozenset((self._compile(parse(expression), _MATCH),)), is_start=True, after_word=False)
        self._states: dict[tuple[frozenset[int], bool], _State] = {}

    @staticmethod
    @lru_cache(maxsize=KEPT_PATTERNS)
    def of(expression: str) -> TopicPattern:
        return TopicPattern(expression)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))

    def matches(self, name: str) -> bool:
        """The expression means the whole name."""
        state = self._start
        for character in name:
            state = state.following.get(character) or self._advance(state, character)
            if not state.steps:
                return False
        if state.accepts is None:
            state.accepts = _MATCH in self._reachable(state, None)
        return state.accepts

    def _advance(self, state: _State, character: str) -> _State:
        steps = (self._steps[step] for step in self._reachable(state, character))
        ahead = frozenset(step.to for step in steps if isinstance(step, _Read) and character in step.characters)
        after_word = character in _WORD
        following = self._states.get((ahead, after_word))
        if following is None:
            if len(self._states) >= MAX_STATES:
                self._forget()
            following = self._states[ahead, after_word] = _State(ahead, is_start=False, after_word=after_word)
        state.following[character] = following
        return following

    def _forget(self) -> None:
        for state in (self._start, *self._states.values()):
            state.following = {}
        self._states = {}

    def _reachable(self, state: _State, character: str | None) -> set[int]:
        """The steps to which a state leads without reading; None: the name is at its end."""
        holds = {
            Where.START: state.is_start,
            Where.END: character is None,
            Where.BOUNDARY: state.after_word != (character in _WORD),
            Where.NO_BOUNDARY: state.after_word == (character in _WORD),
        }
        found = set(state.steps)
        waiting = list(state.steps)
        while waiting:
            step = self._steps[waiting.pop()]
            ahead: tuple[int, ...] = ()
            if isinstance(step, _Go):
                ahead = step.to
            elif isinstance(step, _Check) and holds[step.where]:
                ahead = (step.to,)
            waiting.extend(new for new in ahead if new not in found)
            found.update(ahead)
        return found

    def _compile(self, node: Node, then: int) -> int:
        """The first step of what matches the node and goes on at `then`."""
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
            raise InvalidRegularExpression("the regular expression repeats too much")
        self._steps.append(step)
        return len(self._steps) - 1
