"""An audit's report as a table for people, or as JSON for scripts."""

from __future__ import annotations

import dataclasses
import json

from rich.console import Console
from rich.table import Table

from oncelog.audit.account import AuditReport, Counts

COLUMNS = ("sent", "stored", "lost", "duplicated", "out of order")


def print_report(report: AuditReport, console: Console) -> None:
    table = Table()
    table.add_column("partition")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for entry in report.partitions:
        table.add_row(str(entry.partition), *_cells(entry.counts))
    table.add_section()
    table.add_row("total", *_cells(report.total), style="bold")
    console.print(table)
    total = report.total
    if total.misplaced:
        console.print(
            f"{total.misplaced:,} records stand at another offset than the one their sender was told", style="red"
        )
    if total.unnumbered:
        console.print(f"{total.unnumbered:,} records carry no id and say nothing about loss or order")
    for entry in report.partitions:
        for example in entry.examples:
            console.print(f"{entry.partition}: {example}", style="red", highlight=False)


def to_json(report: AuditReport, **more: object) -> str:
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
    return json.dumps({"clean": report.clean, "total": total, "partitions": partitions, **more}, indent=2)


def _cells(counts: Counts) -> list[str]:
    findings = (counts.lost, counts.duplicated, counts.out_of_order)
    return [f"{counts.sent:,}", f"{counts.stored:,}", *(f"[red]{n:,}[/]" if n else "[green]0[/]" for n in findings)]
