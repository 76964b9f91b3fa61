"""The table on the terminal, the JSON of every sample, and RESULTS.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import NAMES, OURS, Bounds, Figure
from tests.support.parts import KAFKA_VERSION

HOME = Path(__file__).parent
RESULTS = HOME / "results"
COLUMNS = ("what", "unit", "compared with", "theirs", "oncelog", "ratio", "must", "goal", "verdict")


def machine() -> dict[str, str]:
    """What the figures depend on; never the name of the machine."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "memory": f"{int(_first_value('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.0f} GB",
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "java": _java_version(),
        "kafka": KAFKA_VERSION,
    }


def print_table(figures: list[Figure]) -> None:
    table = Table(*COLUMNS[:3])
    for column in COLUMNS[3:]:
        table.add_column(column, justify="right")
    for figure in figures:
        table.add_row(*_cells(figure))
    console = Console(width=None if os.isatty(1) else 160)
    console.print(table)
    for note in dict.fromkeys(f"{figure.what}: {figure.note}" for figure in figures if figure.note):
        console.print(note)


def write_json(row: str, figures: list[Figure]) -> Path:
    path = RESULTS / f"{date.today().isoformat()}-{row}.json"
    path.parent.mkdir(exist_ok=True)
    content = {"row": row, "machine": machine(), "figures": [_to_json(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def write_markdown(rows: Sequence[str]) -> Path:
    """RESULTS.md from the newest JSON of every row, so that a single row can be measured again."""
    newest = {row: path for row in rows for path in sorted(RESULTS.glob(f"????-??-??-{row}.json"))}
    measured = {path.name[:10]: json.loads(path.read_text()) for path in newest.values()}
    about = measured[max(measured)]["machine"]
    lines = [
        "# oncelog and its peers, measured in one run",
        "",
        f"`make bench`: {about['cores']} cores, {about['memory']} memory, Linux {about['kernel']}, "
        f"Python {about['python']}, Java {about['java']}, Apache Kafka {about['kafka']} (one node, KRaft, `-Xmx1G`, "
        "default settings). Medians of rounds in which the two sides take turns; each row is the newest run of that "
        "row, not the best, and rows may come from different runs and processors; only the ratio means anything on a "
        "shared machine. Every sample is in `results/`.",
        "",
        "| " + " | ".join((*COLUMNS, "processor", "date")) + " |",
        "|---|---|---|" + "---:|" * (len(COLUMNS) - 3) + "---|---:|",
    ]
    notes: dict[str, None] = {}
    for path in newest.values():
        content = json.loads(path.read_text())
        for figure in map(_from_json, content["figures"]):
            lines.append("| " + " | ".join((*_cells(figure), content["machine"]["cpu"], path.name[:10])) + " |")
            if figure.note:
                notes[f"- {figure.what}: {figure.note}"] = None
    markdown = HOME / "RESULTS.md"
    markdown.write_text("\n".join([*lines, "", *notes]).rstrip() + "\n")
    return markdown


def _to_json(figure: Figure) -> dict[str, Any]:
    medians = {side: figure.median(side) for side in (figure.peer, OURS)}
    return {**asdict(figure), "median": medians, "ratio": figure.ratio, "verdict": figure.verdict}


def _from_json(content: dict[str, Any]) -> Figure:
    bounds = Bounds(**content["bounds"]) if content["bounds"] else None
    peer = content.get("peer", "kafka")
    return Figure(content["what"], content["unit"], content["samples"], bounds, content["note"], peer)


def _cells(figure: Figure) -> tuple[str, ...]:
    bounds = figure.bounds
    return (
        figure.what,
        figure.unit,
        NAMES.get(figure.peer, figure.peer),
        _number(figure.median(figure.peer)),
        _number(figure.median(OURS)),
        "" if figure.ratio is None else f"{figure.ratio:.2f}x",
        bounds.text(bounds.must) if bounds else "",
        bounds.text(bounds.goal) if bounds else "",
        figure.verdict,
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _first_value(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _java_version() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return said.split('"')[1] if '"' in said else "unknown"
