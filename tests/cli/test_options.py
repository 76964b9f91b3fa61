from __future__ import annotations

import argparse

import pytest

from oncelog.cli import options


def test_key_value() -> None:
    assert options.key_value("retention.ms = 5") == ("retention.ms", "5")
    assert options.key_value("a=b=c") == ("a", "b=c")
    assert options.key_value("a=") == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="KEY=VALUE"):
            options.key_value(text)


def test_numbers() -> None:
    assert options.positive("1") == 1
    assert options.not_negative("0") == 0
    assert options.whole_number("-5") == -5
    assert options.seconds("0.5") == 0.5
    for parse, text in [
        (options.positive, "0"),
        (options.not_negative, "-1"),
        (options.whole_number, "1.5"),
        (options.seconds, "-1"),
        (options.seconds, "inf"),
        (options.seconds, "soon"),
    ]:
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


def test_a_separator_is_written_as_in_a_shell() -> None:
    assert options.separator(":") == ":"
    assert options.separator(r"\t") == "\t"
    with pytest.raises(argparse.ArgumentTypeError):
        options.separator("")
