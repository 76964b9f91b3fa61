"""Argument types that several commands share, and what is raised for options that do not go together. Both are wrong
usage: the command's usage is shown, and the exit code is 2."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from oncelog.errors import OncelogError


class WrongUsage(OncelogError):
    """What was typed makes no sense, whatever the brokers say: found by looking at the options alone."""


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as retention.ms=60000")
    return key.strip(), value.strip()


def settings_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of a key that is given twice the last value counts."""
    return dict(pairs)


def client_config(args: argparse.Namespace, **own: Any) -> dict[str, Any]:
    """What a command's client is told: the brokers, what the command itself wants, and over both what -X says."""
    chosen: dict[str, tuple[str, Any]] = {"bootstrap_servers": ("bootstrap.servers", args.bootstrap_server)}
    for key, value in (*own.items(), *args.client_settings):
        chosen[key.replace(".", "_")] = (key, value)
    return dict(chosen.values())


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask (without a terminal nothing is asked)")


def positive(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def not_negative(text: str) -> int:
    number = whole_number(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is a negative number")
    return number


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


def moment(text: str) -> int:
    """A point in time as milliseconds since the epoch."""
    from datetime import UTC, datetime

    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 2026-03-01T12:00:00") from None
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def separator(text: str) -> str:
    """A separator as typed in a shell: `\\t` is a tab, `\\n` a newline, `\\0` a NUL."""
    decoded = text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0")
    if not decoded:
        raise argparse.ArgumentTypeError("the separator is empty")
    return decoded
