"""The properties files that Java programs are configured with: `key=value` lines, as Kafka's server.properties."""

from __future__ import annotations

import re

from oncelog.errors import InvalidConfig

COMMENT_SIGNS = ("#", "!")
_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(\s*[=:]\s*|\s+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a file; of a key that appears twice the last line counts, as in Java."""
    settings = {}
    for line in _logical_lines(text):
        separator = _SEPARATOR.search(line)
        if separator is None:
            name, value = line, ""
        else:
            name, value = line[: separator.start(1)], line[separator.end(1) :]
        settings[_unescape(name)] = _unescape(value).strip()
    return settings


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks; one that ends in a single backslash continues on the next."""
    lines = []
    pending = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not pending and (not line or line.startswith(COMMENT_SIGNS)):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
        if lines[-1][0] in "=:":
            raise InvalidConfig(f"line {number} has a value without a key: {line}")
    return [*lines, pending] if pending else lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)
