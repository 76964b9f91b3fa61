"""What `oncelog demo` found: audits and what was done meanwhile, as a table for people or JSON for scripts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from oncelog.audit.account import AuditReport, Counts
from oncelog.cli import audit_table
from oncelog.faults import Report
from oncelog.printable import counted


@dataclass(frozen=True, slots=True)
class Shipped:
    """Orders on their way through Spark: sent to a topic, in the topic made of it, and in the table made of that."""

    stored: AuditReport
    in_topic: AuditReport
    in_table: AuditReport

    @property
    def places(self) -> tuple[tuple[str, AuditReport], ...]:
        return (
            ("in the first topic", self.stored),
            ("in the output topic", self.in_topic),
            ("rows in the table", self.in_table),
        )

    @property
    def is_clean(self) -> bool:
        return all(report.clean for _, report in self.places)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The same orders, our way and plainly: sent to the log, made payments of, and booked into a database."""

    stored: AuditReport
    stored_plainly: AuditReport
    processed: AuditReport
    """As a reader of committed records sees the payments."""
    processed_plainly: AuditReport
    """As one that reads whatever is there sees the same topic."""
    booked: AuditReport
    booked_plainly: AuditReport
    shipped: Shipped | None = None
    """None without Spark."""

    @property
    def is_clean(self) -> bool:
        reports = (self.stored, self.processed, self.booked)
        return all(report.clean for report in reports) and (self.shipped is None or self.shipped.is_clean)

    @property
    def shows_harm(self) -> bool:
        return not (self.stored_plainly.clean or self.processed_plainly.clean or self.booked_plainly.clean)


@dataclass
class Tally:
    """What was done to the broker, to processes and to connections of our way, and what the broker noticed."""

    seed: int = 0
    kills: int = 0
    """Of the broker."""
    processor_kills: int = 0
    member_kills: int = 0
    driver_kills: int = 0
    worker_kills: int = 0
    """Of Spark's driver, and of Python workers of its executor."""
    answers_lost: int = 0
    requests_overtaken: int = 0
    connections_cut: int = 0
    duplicates_recognised: int = 0
    restarts_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Records that a producer gave up on: not lost, since nobody was told that they are stored, but not sent either."""

    def count_faults(self, *reports: Report) -> None:
        for report in reports:
            self.answers_lost += sum(counts.dropped for counts in report.responses.values())
            self.requests_overtaken += sum(counts.reordered for counts in report.requests.values())
            self.connections_cut += sum(counts.cut for counts in report.requests.values())


def to_json(evidence: Evidence, tally: Tally) -> str:
    return audit_table.to_json(
        evidence.stored,
        clean=evidence.is_clean,
        without_idempotence=dataclasses.asdict(evidence.stored_plainly.total),
        processed=_counts(evidence.processed, "processed"),
        processed_read_uncommitted=_counts(evidence.processed_plainly, "processed"),
        booked=_counts(evidence.booked, "booked"),
        booked_without_once=_counts(evidence.booked_plainly, "booked"),
        shipped=_shipped(evidence.shipped),
        **dataclasses.asdict(tally),
    )


def _shipped(shipped: Shipped | None) -> dict[str, object] | None:
    if shipped is None:
        return None
    return {
        "stored": dataclasses.asdict(shipped.stored.total),
        "in_topic": _counts(shipped.in_topic, "shipped"),
        "in_table": _counts(shipped.in_table, "rows"),
    }


def _counts(report: AuditReport, done: str) -> dict[str, object]:
    counts = dataclasses.asdict(report.total)
    return {done: counts.pop("stored"), **counts}


def print_evidence(evidence: Evidence, tally: Tally, console: Console) -> None:
    console.print()
    console.print(_table(evidence))
    if evidence.shipped is not None:
        console.print(_shipped_table(evidence.shipped))
    console.print(
        f"kill -9 of {_kills(tally)}\n"
        f"{tally.answers_lost} answers lost, {tally.requests_overtaken} requests overtaken, {tally.connections_cut}"
        f" connections cut (seed {tally.seed})\n"
        f"{tally.duplicates_recognised:,} duplicate batches recognised and not stored again",
        highlight=False,
        soft_wrap=True,
    )
    for complaint in complaints(evidence, tally):
        console.print(complaint, style="red", highlight=False, soft_wrap=True)
    total = evidence.booked.total
    verdict = (
        f"sent {total.sent:,}, stored {evidence.stored.total.stored:,},"
        f" processed {evidence.processed.total.stored:,}, booked {total.stored:,}: {_findings(total)}"
    )
    _print_verdict(verdict, total.clean, console)
    if evidence.shipped is not None:
        _print_verdict(_shipped_verdict(evidence.shipped), evidence.shipped.is_clean, console)


def _kills(tally: Tally) -> str:
    killed = {
        "the broker": tally.kills,
        "a processor": tally.processor_kills,
        "a consumer": tally.member_kills,
        "a Spark driver": tally.driver_kills,
        "a Spark worker": tally.worker_kills,
    }
    return ", ".join(f"{who} {count} times" if count > 1 else f"{who} once" for who, count in killed.items() if count)


def _shipped_verdict(shipped: Shipped) -> str:
    total = shipped.in_table.total
    return (
        f"through Spark: sent {total.sent:,}, stored {shipped.stored.total.stored:,}, in the output topic"
        f" {shipped.in_topic.total.stored:,}, rows in the table {total.stored:,}: {_findings(total)}"
    )


def _findings(total: Counts) -> str:
    return f"lost {total.lost:,}, duplicated {total.duplicated:,}, out of order {total.out_of_order:,}"


def _print_verdict(verdict: str, is_clean: bool, console: Console) -> None:
    console.print(f"[bold]{verdict}[/]", style="green" if is_clean else "red", highlight=False, soft_wrap=True)


def complaints(evidence: Evidence, tally: Tally) -> Iterator[str]:
    if tally.failures:
        yield f"{counted(len(tally.failures), 'record')} could not be sent, first {tally.failures[0]}"
    if evidence.stored_plainly.clean:
        yield "without idempotence nothing went wrong either: this run proves nothing"
    if evidence.processed_plainly.clean:
        yield "a reader of uncommitted records saw nothing wrong either: this run proves nothing"
    if evidence.booked_plainly.clean:
        yield "with automatic commits nothing went wrong either: this run proves nothing"
    shipped = evidence.shipped.places if evidence.shipped else ()
    for place, report in (
        ("log", evidence.stored),
        ("payments", evidence.processed),
        ("database", evidence.booked),
        *((f"Spark, {name}", report) for name, report in shipped),
    ):
        for entry in report.partitions:
            for example in entry.examples:
                yield f"{place}, {entry.partition}: {example}"


def _table(evidence: Evidence) -> Table:
    table = Table(caption="processors and both groups work with what the idempotent producer has sent")
    table.add_column("orders")
    table.add_column("oncelog", justify="right")
    table.add_column("the plain way", justify="right")
    table.add_row("[bold]a producer sends them", "idempotent (default)", "enable.idempotence=false")
    _add_audit(table, ("sent", "stored in the log"), evidence.stored.total, evidence.stored_plainly.total)
    table.add_row("[bold]transactions make payments of them", "read_committed", "read_uncommitted")
    _add_audit(table, ("to process", "payments seen"), evidence.processed.total, evidence.processed_plainly.total)
    table.add_row("[bold]a group books the payments", "oncelog.once", "automatic commits")
    _add_audit(table, ("to book", "booked in SQLite"), evidence.booked.total, evidence.booked_plainly.total)
    return table


def _shipped_table(shipped: Shipped) -> Table:
    table = Table("through Spark", "sent", "there", "lost", "duplicated", "out of order")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, report in shipped.places:
        total = report.total
        found = (total.lost, total.duplicated, total.out_of_order)
        table.add_row(name, f"{total.sent:,}", f"{total.stored:,}", *map(_finding, found))
    return table


def _add_audit(table: Table, names: tuple[str, str], ours: Counts, plain: Counts) -> None:
    table.add_row(names[0], f"{ours.sent:,}", f"{plain.sent:,}")
    table.add_row(names[1], f"{ours.stored:,}", f"{plain.stored:,}")
    for name in ("lost", "duplicated", "out_of_order"):
        table.add_row(name.replace("_", " "), _finding(getattr(ours, name)), _finding(getattr(plain, name)))
    table.add_section()


def _finding(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "[green]0[/]"
