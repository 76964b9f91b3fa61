"""What `oncelog run` shows: a table that changes on a terminal, lines elsewhere, a JSON object per line for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from oncelog.cli.output import detail, print_json_line, say_now
from oncelog.printable import printable
from oncelog.spark.pipeline.plan import plan_event, plan_lines
from oncelog.spark.pipeline.progress import Progress

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from oncelog.spark.pipeline.columns import Columns
    from oncelog.spark.pipeline.document import Problem
    from oncelog.spark.pipeline.values import Pipeline


class Screen(Protocol):
    def problems(self, problems: Iterable[Problem]) -> None: ...
    def plan(self, pipeline: Pipeline, columns: Mapping[str, Columns]) -> None: ...
    def note(self, text: str, **details: Any) -> None: ...
    def progress(self, progress: Progress) -> None: ...


@contextmanager
def open_screen(*, as_json: bool) -> Iterator[Screen]:
    if as_json:
        yield JsonScreen()
    elif not sys.stdout.isatty():
        yield LineScreen()
    else:
        from rich.live import Live

        with Live(auto_refresh=False, transient=False) as live:
            yield TerminalScreen(live)


class JsonScreen:
    def problems(self, problems: Iterable[Problem]) -> None:
        for one in problems:
            self._print({"event": "problem", "file": one.where.origin, "line": one.where.line, "problem": one.text})

    def plan(self, pipeline: Pipeline, columns: Mapping[str, Columns]) -> None:
        self._print(plan_event(pipeline, columns))

    def note(self, text: str, **details: Any) -> None:
        self._print({"event": "note", "text": text, **details})

    def progress(self, progress: Progress) -> None:
        self._print(progress.event())

    def _print(self, event: Mapping[str, Any]) -> None:
        print_json_line(event)


class LineScreen:
    def problems(self, problems: Iterable[Problem]) -> None:
        for one in problems:
            detail(str(one))

    def plan(self, pipeline: Pipeline, columns: Mapping[str, Columns]) -> None:
        for line in plan_lines(pipeline, columns):
            self._print(line)

    def note(self, text: str, **details: Any) -> None:
        more = "".join(f" ({key}: {value})" for key, value in details.items())
        self._print(text + more)

    def progress(self, progress: Progress) -> None:
        self._print(progress.line())

    def _print(self, line: str) -> None:
        say_now(line)


class TerminalScreen(LineScreen):
    """One row per sink, with its last batch and all its rows so far; whatever else is said scrolls by above."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._last: dict[str, Progress] = {}
        self._rows: dict[str, int] = {}

    def progress(self, progress: Progress) -> None:
        self._last[progress.sink] = progress
        self._rows[progress.sink] = self._rows.get(progress.sink, 0) + (progress.rows or 0)
        self._live.update(self.table(), refresh=True)

    def table(self) -> Table:
        from rich.table import Table

        table = Table()
        for title in (
            "sink",
            "batch",
            "read",
            "rows in all",
            "rows",
            "rows/s",
            "lag",
            "took ms",
            "write ms",
            "commit ms",
        ):
            table.add_column(title, justify="left" if title == "sink" else "right")
        for name, one in self._last.items():
            lag = "-" if one.lag is None else f"{one.lag:,}"
            rows = "-" if one.rows is None else f"{one.rows:,}"
            times = (one.duration_ms, one.write_ms, one.commit_ms)
            table.add_row(
                printable(name),
                f"{one.batch:,}",
                f"{one.rows_read:,}",
                f"{self._rows[name]:,}",
                rows,
                f"{one.rows_per_second:,.0f}",
                lag,
                *(f"{took:,}" for took in times),
            )
        return table

    def _print(self, line: str) -> None:
        self._live.console.print(printable(line), markup=False, highlight=False)
