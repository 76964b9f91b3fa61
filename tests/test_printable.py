"""Text from elsewhere is shown, never obeyed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.printable import clause, counted, excerpt, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders-7", "orders-7"),
        ("Grüße, 世界 🎉 \\n", "Grüße, 世界 🎉 \\n"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nb\tc\rd\0", r"a\nb\tc\rd\x00"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("abc\u202edef\u2066", r"abc\u202edef\u2066"),
        ("one\u2028two", r"one\u2028two"),
        ("\ud800", r"\ud800"),
        ("\ufeff\U000e0041", r"\ufeff\U000e0041"),
        (7, "7"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: object, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ("9", "'9'"),
        ("a\nb", r"'a\nb'"),
        (b"\xff\x1b[2J and more", r"'\xff\x1b[2J and more'"),
        ("x" * 81, "'" + "x" * 80 + "...'"),
        ("\0" * 80, "'" + r"\x00" * 20 + "...'"),
        (b"\0" * 10**6, "'" + r"\x00" * 20 + "...'"),
    ],
)
def test_an_excerpt_is_printable_and_short(found: object, shown: str) -> None:
    assert excerpt(found) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_is_left_to_obey(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in shown)
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


def test_one_is_not_many() -> None:
    assert [counted(count, "record") for count in (0, 1, 2_000)] == ["0 records", "1 record", "2,000 records"]
    assert counted(2, "batch", "batches") == "2 batches"


def test_a_sentence_goes_on_without_its_full_stop() -> None:
    assert [clause("It failed."), clause(ValueError("odd")), clause("")] == ["It failed", "odd", ""]
