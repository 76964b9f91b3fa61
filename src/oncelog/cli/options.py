"""Argument types that several commands share. A bad value is wrong usage: argparse says so and exits with 2."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as retention.ms=60000")
    return key.strip(), value.strip()


def settings_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of a key that is given twice the last value counts."""
    return dict(pairs)


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


def separator(text: str) -> str:
    """A separator as typed in a shell: `\\t` is a tab, `\\n` a newline, `\\0` a NUL."""
    decoded = text.replace("\\t", "\t").replace("\\n", "\n").replace("\\0", "\0")
    if not decoded:
        raise argparse.ArgumentTypeError("the separator is empty")
    return decoded
