"""How commands show their results: a table on a terminal, plain aligned text in a pipe, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

GAP = "  "


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Columns whose cells are all numbers are aligned to the right."""
    cells = [[_text(value) for value in row] for row in rows]
    right = [
        bool(cells) and all(row[index].replace(",", "").lstrip("-").isdigit() for row in cells)
        for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _print_rich(columns, cells, right, title)
    else:
        _print_plain(columns, cells, right, title)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _print_rich(columns: Sequence[str], cells: list[list[str]], right: list[bool], title: str | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for name, to_the_right in zip(columns, right, strict=True):
        table.add_column(name, justify="right" if to_the_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_plain(columns: Sequence[str], cells: list[list[str]], right: list[bool], title: str | None) -> None:
    if title:
        print(title)
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = [
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(line, widths, right, strict=True)
        ]
        print(GAP.join(padded).rstrip())
