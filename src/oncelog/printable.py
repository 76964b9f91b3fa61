"""Text from elsewhere on its way to a terminal: the one function that makes it safe to show.

Names, keys, values and messages come from clients and brokers, and may hold anything: an escape sequence that
recolours, clears or retitles a terminal, a newline that looks like another row, a mark that turns the direction of
reading. They are shown as Python would write them (`\\x1b`, `\\n`, `\\u202e`) instead of being obeyed. Everything else
stays as it is.
"""

from __future__ import annotations

import functools
import re
from typing import Final

MAX_EXCERPT: Final = 80
"""Characters of what was found where something else was expected."""

UNSAFE: Final = (
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters, of which 0x9b begins an escape sequence as well
    "\xad\u061c\u180e\u200b\u200e\u200f\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, or turning the direction
    "\u2028-\u202e"  # line ends that some terminals obey; more turns of the direction
    "\ud800-\udfff"  # halves of characters, which cannot be written
    "\U000e0000-\U000e0fff"  # tags, which nobody sees
    "]"
)


def clause(text: object) -> str:
    """A sentence that more is to follow, such as `; trying again`: without its full stop."""
    return str(text).rstrip().removesuffix(".")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`counted(1, "record") == "1 record"`, `counted(2_000, "batch", "batches") == "2,000 batches"`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


@functools.cache
def unsafe() -> re.Pattern[str]:
    """Compiled when there is something to look for: every command would wait for it."""
    return re.compile(UNSAFE)


def printable(text: object) -> str:
    """Always one line: `printable("a\\x1b[2Jb\\n") == r"a\\x1b[2Jb\\n"`, with four visible characters for ESC."""
    shown = str(text)
    return shown if shown.isascii() and shown.isprintable() else unsafe().sub(_escaped, shown)


def excerpt(found: object) -> str:
    """What was found where something else was expected, in quotes: printable, and not long. Bytes are shown as text as
    far as they are UTF-8."""
    if isinstance(found, bytes | bytearray | memoryview):
        found = bytes(found[: 4 * MAX_EXCERPT]).decode(errors="backslashreplace")
    text = str(found)
    shown = printable(text[:MAX_EXCERPT])
    return f"'{shown[:MAX_EXCERPT]}...'" if len(text) > MAX_EXCERPT or len(shown) > MAX_EXCERPT else f"'{shown}'"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()
