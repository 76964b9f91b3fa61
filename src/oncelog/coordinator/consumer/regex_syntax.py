"""RE2's syntax of regular expressions, read for the characters that a topic's name can have.

Owns the grammar: what is RE2's is understood, what is not (lookarounds, backreferences) is refused, as are expressions
that grow too large. The result is a tree; nothing here matches anything.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from enum import Enum

from oncelog.errors import InvalidRegularExpression

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names. Every other one of an expression matches nothing."""

MAX_LENGTH = 2_000
MAX_NESTING = 100
MAX_REPETITIONS = 1_000
"""RE2's own limit for the numbers in `{n,m}`."""

_WORD = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS = frozenset(string.digits)
_NOTHING = frozenset[str]()

_ESCAPED_SETS = {"d": _DIGITS, "D": ALPHABET - _DIGITS, "w": _WORD, "W": ALPHABET - _WORD, "s": _NOTHING, "S": ALPHABET}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": _NOTHING,
    "cntrl": _NOTHING,
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _NOTHING,
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_UNICODE = {
    "L": _POSIX["alpha"],
    "Lu": _POSIX["upper"],
    "Ll": _POSIX["lower"],
    "N": _DIGITS,
    "Nd": _DIGITS,
    "P": _POSIX["punct"],
    "Pd": frozenset("-"),
    "Pc": frozenset("_"),
    "Po": frozenset("."),
    "Latin": _POSIX["alpha"],
}
"""The general categories and scripts in which characters of topic names are. Others are refused."""


class Where(Enum):
    START = "^"
    END = "$"
    BOUNDARY = "\\b"
    NO_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class OneOf:
    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class At:
    where: Where


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    least: int
    most: int | None
    """None: as often as one likes."""


Node = OneOf | At | Sequence | Choice | Repeat

_PLACES = {"A": Where.START, "z": Where.END, "b": Where.BOUNDARY, "B": Where.NO_BOUNDARY}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(expression: str) -> Node:
    if len(expression) > MAX_LENGTH:
        raise InvalidRegularExpression(f"the expression has {len(expression)} characters, more than {MAX_LENGTH}")
    parser = _Parser(expression)
    node = parser.choice(0)
    if not parser.is_done:
        raise parser.error("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._text)

    def error(self, problem: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{self._text!r} is not a regular expression: {problem} at {self._at}")

    def choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            raise self.error("too many groups within groups")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.is_done and self._text[self._at] not in "|)":
            part = self._atom(depth)
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        count = self._count()
        if count is None:
            return part
        self._take("?")
        if self._count() is not None:
            raise self.error("two repetitions in a row")
        return Repeat(part, *count)

    def _count(self) -> tuple[int, int | None] | None:
        for sign, count in _COUNTS.items():
            if self._take(sign):
                return count
        return self._braces()

    def _braces(self) -> tuple[int, int | None] | None:
        """`{n}`, `{n,}`, `{n,m}`. Anything else in braces stands for itself, as in RE2."""
        end = self._text.find("}", self._at)
        if not self._looking_at("{") or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not (least.isascii() and least.isdigit() and (not most or (most.isascii() and most.isdigit()))):
            return None
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > MAX_REPETITIONS or (high is not None and high < low):
            raise self.error("bad number of repetitions")
        self._at = end + 1
        return low, high

    def _atom(self, depth: int) -> Node | None:
        """None for what only sets a flag."""
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "\\":
                return self._escape()
            case "^" | "$":
                return At(Where(character))
            case "*" | "+" | "?":
                raise self.error("nothing to repeat")
            case "[":
                characters = self._class()
            case ".":
                characters = ALPHABET
            case _:
                characters = self._literal(character)
        return OneOf(characters)

    def _group(self, depth: int) -> Node | None:
        ignored_case = self._ignores_case
        if self._take("?") and self._group_head() == ")":
            return None
        node = self.choice(depth + 1)
        if not self._take(")"):
            raise self.error("missing )")
        self._ignores_case = ignored_case
        return node

    def _group_head(self) -> str:
        """What follows `(?`: a name, or flags that hold for the group (`:`) or from now on (`)`)."""
        if self._take("P<") or (self._looking_at("<") and not self._looking_at("<=") and not self._looking_at("<!")):
            self._take("<")
            end = self._text.find(">", self._at)
            if end < 0 or not self._text[self._at : end].isidentifier():
                raise self.error("bad name of a group")
            self._at = end + 1
            return ":"
        turns_on = True
        while (sign := self._next()) not in (":", ")"):
            if sign == "-" and turns_on:
                turns_on = False
            elif sign == "i":
                self._ignores_case = turns_on
            elif sign not in "msU":
                raise self.error("lookarounds and other extensions of RE2's syntax are not supported")
        return sign

    def _escape(self) -> Node:
        if self._take("Q"):
            quoted, _, rest = self._text[self._at :].partition("\\E")
            self._at = len(self._text) - len(rest)
            return Sequence(tuple(OneOf(self._literal(character)) for character in quoted))
        if not self.is_done and self._text[self._at] in _PLACES:
            return At(_PLACES[self._next()])
        return OneOf(self._escaped_set())

    def _escaped_set(self) -> frozenset[str]:
        character = self._next()
        if character in _ESCAPED_SETS:
            return _ESCAPED_SETS[character]
        if character in "pP":
            return self._unicode(is_negated=character == "P")
        return self._literal(self._escaped_character(character))

    def _escaped_character(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0":
            digits = self._digits_ahead("01234567", 2)
            return chr(int("0" + digits, 8))
        if character.isalnum():
            raise self.error(f"\\{character} is not known")
        return character

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            digits = self._digits_ahead(string.hexdigits, 2)
        if not digits or set(digits) - set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise self.error("bad hexadecimal character")
        return chr(int(digits, 16))

    def _digits_ahead(self, allowed: str, most: int) -> str:
        start = self._at
        while not self.is_done and self._at - start < most and self._text[self._at] in allowed:
            self._at += 1
        return self._text[start : self._at]

    def _unicode(self, *, is_negated: bool) -> frozenset[str]:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                raise self.error("missing }")
            name = self._text[self._at : end]
            self._at = end + 1
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if name not in _UNICODE:
            raise self.error(f"\\p{{{name}}} is not known")
        return ALPHABET - _UNICODE[name] if is_negated else _UNICODE[name]

    def _class(self) -> frozenset[str]:
        is_negated = self._take("^")
        found: set[str] = set()
        is_first = True
        while is_first or not self._looking_at("]"):
            found |= self._class_item()
            is_first = False
        self._at += 1
        return ALPHABET - found if is_negated else frozenset(found)

    def _class_item(self) -> frozenset[str]:
        if self._take("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : end].removeprefix("^") if end >= 0 else ""
            if name not in _POSIX:
                raise self.error("unknown class of characters")
            is_negated = self._looking_at("^")
            self._at = end + 2
            return ALPHABET - _POSIX[name] if is_negated else _POSIX[name]
        first = self._next()
        if first == "\\":
            character = self._next()
            if character in _ESCAPED_SETS:
                return _ESCAPED_SETS[character]
            if character in "pP":
                return self._unicode(is_negated=character == "P")
            first = self._escaped_character(character)
        if not self._looking_at("-") or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return self._literal(first)
        self._at += 1
        last = self._next()
        if last == "\\":
            last = self._escaped_character(self._next())
        if last < first:
            raise self.error("a range ends before it begins")
        between = frozenset(character for character in ALPHABET if first <= character <= last)
        return frozenset(map(str.swapcase, between)) | between if self._ignores_case else between

    def _literal(self, character: str) -> frozenset[str]:
        same = {character.lower(), character.upper()} if self._ignores_case else {character}
        return ALPHABET & same

    def _next(self) -> str:
        if self.is_done:
            raise self.error("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _looking_at(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _take(self, sign: str) -> bool:
        if not self._looking_at(sign):
            return False
        self._at += len(sign)
        return True
