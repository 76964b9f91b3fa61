"""Where each key of a TOML text stands, which Python's parser does not tell.

Owns the mapping from a key's path to its line, through tables, arrays of tables, dotted and quoted keys, inline tables
and strings of several lines. Never judges: the text is one that `tomllib` has accepted. Values are skipped, not read.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

Path = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTINUED = re.compile(r"\\[ \t]*\n\s*")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_BLANK = re.compile(r"[ \t]*")


@dataclass(frozen=True, slots=True)
class Spot:
    line: int
    text_lines: tuple[int, ...] = ()
    """Of a string: the line on which each of its own lines begins."""


def locate(text: str) -> dict[Path, Spot]:
    """The spot of every table and key; elements of arrays are counted from 0."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._spots: dict[Path, Spot] = {}
        self._last_index: dict[Path, int] = {}

    def scan(self) -> dict[Path, Spot]:
        prefix: Path = ()
        self._skip_space()
        while self._at < len(self._text):
            prefix = self._header() if self._next() == "[" else self._assignment(prefix)
            self._skip_space()
        return self._spots

    def _header(self) -> Path:
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        keys = self._dotted_key()
        self._at += brackets
        path = self._inside_arrays(keys[:-1])
        self._found((*path, keys[-1]))
        path = (*path, keys[-1])
        if brackets == 2:
            self._last_index[path] = self._last_index.get(path, -1) + 1
        path = self._inside_arrays((), path)
        self._found(path)
        return path

    def _inside_arrays(self, keys: Path, path: Path = ()) -> Path:
        """A name that belongs to an array of tables means its last table."""
        if path in self._last_index:
            path = (*path, self._last_index[path])
        for key in keys:
            path = (*path, key)
            self._found(path)
            if path in self._last_index:
                path = (*path, self._last_index[path])
        return path

    def _assignment(self, prefix: Path) -> Path:
        path = prefix
        for key in self._dotted_key():
            path = (*path, key)
            self._found(path)
        self._at += 1  # the equals sign
        self._skip_blank()
        self._value(path)
        return prefix

    def _dotted_key(self) -> tuple[str, ...]:
        keys: list[str] = []
        while True:
            self._skip_blank()
            keys.append(self._key())
            self._skip_blank()
            if self._next() != ".":
                return tuple(keys)
            self._at += 1

    def _key(self) -> str:
        start = self._at
        if self._next() in "\"'":
            self._string()
            quoted: str = tomllib.loads(f"key = {self._text[start : self._at]}")["key"]
            return quoted
        return self._take(_BARE_KEY)

    def _value(self, path: Path) -> None:
        opening = self._next()
        if opening in "\"'":
            line = self._spots[path].line if path in self._spots else self._line
            self._spots[path] = Spot(line, self._string())
        elif opening == "[":
            self._elements(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            self._take(_BARE_VALUE)

    def _elements(self, path: Path) -> None:
        self._at += 1
        count = 0
        while not self._ends_with("]"):
            self._found((*path, count))
            self._value((*path, count))
            count += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while not self._ends_with("}"):
            self._assignment(path)

    def _ends_with(self, closing: str) -> bool:
        """Go to the next element, or past the end."""
        self._skip_space()
        if self._next() == ",":
            self._at += 1
            self._skip_space()
        if self._next() != closing:
            return False
        self._at += 1
        return True

    def _string(self) -> tuple[int, ...]:
        quote = self._next()
        delimiter = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(delimiter)
        if len(delimiter) == 3 and self._next() == "\n":
            self._newline()
        lines = [self._line]
        while not self._text.startswith(delimiter, self._at):
            if quote == '"' and self._next() == "\\":
                self._escape(lines)
            elif self._next() == "\n":
                self._newline()
                lines.append(self._line)
            else:
                self._at += 1
        self._at += len(delimiter)
        while len(delimiter) == 3 and self._next() == quote:  # quotes that belong to the text, before the last three
            self._at += 1
        return tuple(lines)

    def _escape(self, lines: list[int]) -> None:
        continued = _CONTINUED.match(self._text, self._at)
        if continued is not None:
            self._line += continued.group().count("\n")
            self._at = continued.end()
            return
        if self._text[self._at + 1] == "n":
            lines.append(self._line)
        self._at += 2

    def _found(self, path: Path) -> None:
        self._spots.setdefault(path, Spot(self._line))

    def _skip_space(self) -> None:
        """Blanks, newlines and comments."""
        while True:
            self._skip_blank()
            if self._next() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._next() == "\n":
                self._newline()
            else:
                return

    def _skip_blank(self) -> None:
        self._take(_BLANK)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"line {self._line}: the text is not one that tomllib accepts"
        self._at = found.end()
        return found.group()

    def _newline(self) -> None:
        self._at += 1
        self._line += 1

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]
