"""What `oncelog demo` shows while it runs: how many orders are acknowledged and booked, and what is done to whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_LINES = 10


class Screen(Protocol):
    """Where progress is shown."""

    def tell(self, event: str) -> None: ...

    def advance(self, acknowledged: int, booked: int) -> None: ...


@contextmanager
def progress_screen(console: Console, records: int) -> Iterator[Screen]:
    if not console.is_terminal:
        yield _PlainScreen(console, records)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _BarScreen(progress, records)


class _Story:
    """What happens, a line each, with the time since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()

    def tell(self, event: str) -> None:
        self._console.print(f"{time.monotonic() - self._begun:5.1f} s  {event}", highlight=False, soft_wrap=True)


class _BarScreen(_Story):
    def __init__(self, progress: Progress, records: int) -> None:
        super().__init__(progress.console)
        self._progress = progress
        self._acknowledged = progress.add_task("acknowledged", total=records)
        self._booked = progress.add_task("booked", total=records)

    def advance(self, acknowledged: int, booked: int) -> None:
        self._progress.update(self._acknowledged, completed=acknowledged)
        self._progress.update(self._booked, completed=booked)


class _PlainScreen(_Story):
    def __init__(self, console: Console, records: int) -> None:
        super().__init__(console)
        self._records = records
        self._next_line = 0

    def advance(self, acknowledged: int, booked: int) -> None:
        line = PLAIN_LINES * (acknowledged + booked) // (2 * self._records)
        if line >= self._next_line:
            self._next_line = line + 1
            self.tell(f"{acknowledged:>9,} of {self._records:,} acknowledged, {booked:>9,} booked")
