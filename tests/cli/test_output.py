from __future__ import annotations

import sys

import pytest

from oncelog.cli.output import print_table

ROWS = [("orders", 3, (1, 2), None), ("a.long.name", 12, (), "x")]


def test_in_a_pipe_tables_are_plain_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions", "isr", "rack"), ROWS, title="all topics")
    assert capsys.readouterr().out == (
        "all topics\n"
        "TOPIC        PARTITIONS  ISR  RACK\n"
        "orders                3  1,2  -\n"
        "a.long.name          12  -    x\n"
    )


def test_on_a_terminal_tables_have_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(("topic", "partitions"), [("[bold]not markup[/bold]", 3)])
    out = capsys.readouterr().out
    assert "┃" in out or "│" in out
    assert "[bold]not markup[/bold]" in out


def test_an_empty_table_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [])
    assert capsys.readouterr().out == "TOPIC\n"
