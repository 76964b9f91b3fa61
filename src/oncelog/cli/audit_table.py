"""An audit's report as a table for people, or as JSON for scripts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from oncelog.audit.account import AuditReport, Counts
from oncelog.cli.output import print_table, say

COLUMNS = ("partition", "sent", "stored", "lost", "duplicated", "out of order")
FINDINGS = COLUMNS[3:]
RED, GREEN = "31", "32"


def print_report(report: AuditReport) -> None:
    rows = [(entry.partition, *_cells(entry.counts)) for entry in report.partitions]
    print_table(COLUMNS, [*rows, ("total", *_cells(report.total))], has_total=True, colour_of=_colour_of)
    total = report.total
    if total.misplaced:
        say(f"{total.misplaced:,} records stand at another offset than the one their sender was told")
    if total.unnumbered:
        say(f"{total.unnumbered:,} records carry no id and say nothing about loss or order")
    for entry in report.partitions:
        for example in entry.examples:
            say(f"{entry.partition}: {example}")


def to_dict(report: AuditReport, **more: object) -> dict[str, Any]:
    partitions = [
        {
            "topic": entry.partition.topic,
            "partition": entry.partition.partition,
            **dataclasses.asdict(entry.counts),
            "examples": entry.examples,
        }
        for entry in report.partitions
    ]
    total = dataclasses.asdict(report.total)
    return {"clean": report.clean, "total": total, "partitions": partitions, **more}


def to_json(report: AuditReport, **more: object) -> str:
    return json.dumps(to_dict(report, **more), indent=2)


def _colour_of(column: int, text: str) -> str | None:
    if COLUMNS[column] not in FINDINGS:
        return None
    return GREEN if text == "0" else RED


def _cells(counts: Counts) -> list[str]:
    numbers = (counts.sent, counts.stored, counts.lost, counts.duplicated, counts.out_of_order)
    return [f"{number:,}" for number in numbers]
