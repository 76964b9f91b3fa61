"""What an AGAINST run says: progress and a table for people, JSON with every sample."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.against.build import Build
from bench.against.pairs import Pairs
from bench.against.turns import SIDES, Result, Side
from bench.report import RESULTS, machine

Outcome = Result | str
"""Of a row: what came of it, or why there is nothing."""

COLUMNS = ("row", "what", "unit", "then", "now", "ratio", "spread", "rounds", "verdict")


def print_table(outcomes: Mapping[str, Outcome]) -> None:
    table = Table(*COLUMNS[:3])
    for column in COLUMNS[3:]:
        table.add_column(column, justify="right")
    for row, outcome in outcomes.items():
        if isinstance(outcome, str):
            table.add_row(row, outcome)
            continue
        for pairs in outcome.first:
            table.add_row(row, *_cells(outcome, pairs))
    Console(width=None if os.isatty(1) else 170).print(table)


def _cells(result: Result, pairs: Pairs) -> tuple[str, ...]:
    measure = pairs.measure
    return (
        measure.what,
        measure.unit,
        _number(statistics.median(pairs.then)),
        _number(statistics.median(pairs.now)),
        f"{pairs.ratio:.3f}x",
        f"± {pairs.spread:.3f}" if math.isfinite(pairs.spread) else "",
        str(len(pairs.now)),
        result.verdict(pairs),
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def write_json(builds: Mapping[Side, Build], outcomes: Mapping[str, Outcome]) -> Path:
    """One file for the older commit and the day; rows that are measured again replace what it says of them."""
    path = RESULTS / f"{date.today().isoformat()}-against-{builds['then'].commit[:12]}.json"
    path.parent.mkdir(exist_ok=True)
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    rows |= {row: {"now": builds["now"].commit, **_to_json(outcome)} for row, outcome in outcomes.items()}
    content = {"then": builds["then"].commit, "machine": machine(), "rows": rows}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path


def _to_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, str):
        return {"not measured": outcome}
    return {
        "figures": [{**_pairs_to_json(pairs), "verdict": outcome.verdict(pairs)} for pairs in outcome.first],
        "measured again": [_pairs_to_json(pairs) for pairs in outcome.again],
    }


def _pairs_to_json(pairs: Pairs) -> dict[str, Any]:
    return {
        **asdict(pairs.measure),
        **{side: getattr(pairs, side) for side in SIDES},
        "ratio": pairs.ratio,
        "spread": pairs.spread if math.isfinite(pairs.spread) else None,
    }
