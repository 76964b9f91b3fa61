"""What clients call themselves does not reach an operator's terminal raw."""

from __future__ import annotations

import logging
import sys

from oncelog.broker.server import LOG_FORMAT, LogLines


def formatted(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("oncelog.x", logging.INFO, "x.py", 1, message, arguments, exc_info)  # type: ignore[arg-type]
    return LogLines(LOG_FORMAT).format(record)


def test_a_message_is_one_line_that_no_terminal_obeys() -> None:
    line = formatted("closing the connection of %s", "evil\x1b[2J\nINFO forged")
    assert line.endswith(r"INFO oncelog.x: closing the connection of evil\x1b[2J\nINFO forged")
    assert "\n" not in line


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("bug")
    except ValueError:
        lines = formatted("bug: it failed", exc_info=sys.exc_info()).splitlines()
    assert lines[0].endswith("bug: it failed")
    assert lines[-1] == "ValueError: bug"
