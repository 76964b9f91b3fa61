"""What Spark says of a query or a batch, as one line, and on which line of the query it was.

Spark's messages carry an error class, a state code, a plan, the query itself and Java's stack. A person needs the
sentence. Pure text: never sees an exception.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 400

_POSITION = re.compile(r"\bline (?P<line>\d+),? pos \d+")
_CLASS = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: .*", re.DOTALL)
_SENTENCE_END = re.compile(
    r"(?<=[.?!])\s+(?:Search path|Verify the spelling|If you did not|To tolerate)\b.*", re.DOTALL
)
_PYTHON_ERROR = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|[A-Z]\w+)): (?P<text>.+)$", re.MULTILINE
)
_TRACEBACK: Final = "Traceback (most recent call last)"


def line_in_query(message: str) -> int | None:
    """Counted from 0."""
    found = _POSITION.search(message)
    return None if found is None else int(found["line"]) - 1


def sentence(message: str) -> str:
    """The one sentence for a person, of whatever came from Spark, Java or a Python worker."""
    python = _python_error(message)
    if python is not None:
        return _cut(python)
    text = _CLASS.sub("", message)
    text = _SENTENCE_END.sub("", _STATE.sub("", text))
    first = next((line.strip() for line in text.splitlines() if line.strip()), message.strip())
    return _cut(first)


def _python_error(message: str) -> str | None:
    """What a traceback of a Python worker ends with: the error itself, however deep Java has wrapped it."""
    start = message.rfind(_TRACEBACK)
    if start < 0:
        return None
    found = _PYTHON_ERROR.search(message, start)
    if found is None:
        return None
    name = found["type"].rpartition(".")[2]
    is_ours = found["type"].startswith("oncelog.")
    return found["text"].strip() if is_ours else f"{name}: {found['text'].strip()}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."
