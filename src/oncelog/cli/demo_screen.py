"""What `oncelog demo` shows while it runs: how many orders have come how far, and what is done to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_LINES = 10


class Screen(Protocol):
    """Where progress is shown."""

    def tell(self, event: str) -> None: ...

    def advance(self, *counts: int) -> None:
        """In the order of the places."""
        ...


@contextmanager
def progress_screen(
    console: Console, records: int, places: Sequence[str], elapsed_s: Callable[[], float]
) -> Iterator[Screen]:
    """`places` are what the records come to one after the other; a bar for each."""
    if not console.is_terminal:
        yield _PlainScreen(console, records, places, elapsed_s)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _BarScreen(progress, records, places, elapsed_s)


class _Story:
    """What happens, a line each, with the time since the beginning."""

    def __init__(self, console: Console, elapsed_s: Callable[[], float]) -> None:
        self._console = console
        self._elapsed_s = elapsed_s

    def tell(self, event: str) -> None:
        self._console.print(f"{self._elapsed_s():5.1f} s  {event}", highlight=False, soft_wrap=True)


class _BarScreen(_Story):
    def __init__(self, progress: Progress, records: int, places: Sequence[str], elapsed_s: Callable[[], float]) -> None:
        super().__init__(progress.console, elapsed_s)
        self._progress = progress
        self._bars = [progress.add_task(place, total=records) for place in places]

    def advance(self, *counts: int) -> None:
        for bar, count in zip(self._bars, counts, strict=True):
            self._progress.update(bar, completed=count)


class _PlainScreen(_Story):
    def __init__(self, console: Console, records: int, places: Sequence[str], elapsed_s: Callable[[], float]) -> None:
        super().__init__(console, elapsed_s)
        self._records = records
        self._places = places
        self._next_line = 0

    def advance(self, *counts: int) -> None:
        line = PLAIN_LINES * sum(counts) // (len(counts) * self._records)
        if line >= self._next_line:
            self._next_line = line + 1
            first, *others = zip(counts, self._places, strict=True)
            parts = [f"{first[0]:>9,} of {self._records:,} {first[1]}", *(f"{n:>9,} {place}" for n, place in others)]
            self.tell(", ".join(parts))
