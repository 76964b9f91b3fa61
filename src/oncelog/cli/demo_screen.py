"""What `oncelog demo` shows: progress while it runs, and the two audits side by side at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oncelog.audit.account import Counts

PLAIN_LINE_EVERY = 0.1
FINDINGS = ("lost", "duplicated", "out_of_order")


class Screen(Protocol):
    """Where progress is shown."""

    def tell(self, event: str) -> None: ...

    def advance(self, acknowledged: int) -> None: ...


@contextmanager
def progress_screen(console: Console, records: int) -> Iterator[Screen]:
    if not console.is_terminal:
        yield _PlainScreen(console, records)
        return
    columns = (TextColumn("acknowledged"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _BarScreen(progress, records)


class _BarScreen:
    def __init__(self, progress: Progress, records: int) -> None:
        self._progress = progress
        self._task = progress.add_task("acknowledged", total=records)

    def tell(self, event: str) -> None:
        self._progress.console.print(event, highlight=False)

    def advance(self, acknowledged: int) -> None:
        self._progress.update(self._task, completed=acknowledged)


class _PlainScreen:
    def __init__(self, console: Console, records: int) -> None:
        self._console = console
        self._records = records
        self._next_line = 0.0

    def tell(self, event: str) -> None:
        self._console.print(event, highlight=False)

    def advance(self, acknowledged: int) -> None:
        share = acknowledged / self._records
        if share >= self._next_line:
            self._next_line = share - share % PLAIN_LINE_EVERY + PLAIN_LINE_EVERY
            self.tell(f"{acknowledged:>9,} of {self._records:,} acknowledged")


def print_comparison(idempotent: Counts, plain: Counts, console: Console) -> None:
    table = Table()
    table.add_column("records")
    table.add_column("idempotent (default)", justify="right")
    table.add_column("enable.idempotence=false", justify="right")
    for name in ("sent", "stored"):
        table.add_row(name, f"{getattr(idempotent, name):,}", f"{getattr(plain, name):,}")
    table.add_section()
    for name in FINDINGS:
        table.add_row(name.replace("_", " "), _finding(getattr(idempotent, name)), _finding(getattr(plain, name)))
    console.print(table)


def _finding(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "[green]0[/]"
