"""The report of an audit: the verdict first, then the counts, then where in the topics the findings lie. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oncelog.audit.account import AuditReport, Counts, Gap
from oncelog.audit.spread import Bins, TopicAudit, all_partitions
from oncelog.report.page import page
from oncelog.report.values import (
    MAX_ROWS,
    Bar,
    BarPlot,
    Cell,
    Histogram,
    Part,
    Prose,
    Section,
    Stack,
    Table,
    Tile,
    Tiles,
    Tone,
    Toned,
    Verdict,
)

COLUMNS = ("sent", "stored", "lost", "duplicated", "out of order", "without id")
MAX_REASONS = 5
"""Findings that the banner quotes; the tables below it have more."""
MAX_OPEN_ROWS = 12
"""A longer list of findings is shown when the reader asks for it."""
HOW_TO_READ = (
    "Each record carries an id `STREAM/NUMBER`. A stream is what one producer sent to one partition, or for one key, "
    "numbered 0, 1, 2, ...\n\n"
    "`lost` are numbers that are missing below the highest of their stream, or that the topic of sent records has and "
    "this one has not. `duplicated` are records whose id is stored already, in whichever partition. `out of order` are "
    "records that stand behind a later one of their stream. A loss is counted where its stream begins."
)


def audit_page(audits: Sequence[TopicAudit], *, subtitle: str = "", footer: str = "") -> str:
    names = ", ".join(audit.topic for audit in audits)
    return page(f"Audit of {names}", audit_sections(audits), subtitle=subtitle, footer=footer)


def audit_sections(audits: Sequence[TopicAudit]) -> list[Section]:
    report = all_partitions(audits)
    return [
        Section("Verdict", (verdict(report), tiles(report.total))),
        Section("Partitions", (counts_table(report), *_bars(report))),
        *(Section(f"Where in {audit.topic}", parts) for audit in audits if (parts := tuple(_places(audit)))),
        Section("How to read this", (Prose(HOW_TO_READ),)),
    ]


def verdict(report: AuditReport) -> Verdict:
    total = report.total
    silent = (
        [f"{total.unnumbered:,} records carry no id and say nothing about loss or order"] if total.unnumbered else []
    )
    if report.clean:
        return Verdict(Tone.GOOD, "Nothing is lost, nothing is duplicated, everything is in order", tuple(silent))
    # One of each partition, then the second of each: what is wrong in several places is seen to be.
    quoted = sorted(
        (at, entry.partition, example) for entry in report.partitions for at, example in enumerate(entry.examples)
    )
    examples = [f"{partition}: {example}" for _, partition, example in quoted]
    found = ", ".join(f"{count:,} {name}" for name, count in _findings(total) if count)
    return Verdict(Tone.BAD, f"Found: {found}", (*examples[:MAX_REASONS], *silent))


def tiles(total: Counts) -> Tiles:
    found = [Tile(name, count, tone=_tone(count)) for name, count in _findings(total) if count or name != "misplaced"]
    silent = [Tile("without id", total.unnumbered, tone=Tone.WARNING)] if total.unnumbered else []
    return Tiles((Tile("sent", total.sent), Tile("stored", total.stored), *found, *silent))


def counts_table(report: AuditReport) -> Table:
    entries = report.partitions
    if len(entries) > MAX_ROWS:  # what is left out should be what is clean
        entries = tuple(sorted(entries, key=lambda entry: entry.counts.clean))
    rows = tuple((str(entry.partition), *_cells(entry.counts)) for entry in entries)
    return Table("Audit", ("partition", *COLUMNS), rows, total=("total", *_cells(report.total)))


def _cells(counts: Counts) -> tuple[Cell, ...]:
    found = (Toned(count, _tone(count)) for count in (counts.lost, counts.duplicated, counts.out_of_order))
    return (counts.sent, counts.stored, *found, counts.unnumbered)


def _findings(counts: Counts) -> list[tuple[str, int]]:
    return [
        ("lost", counts.lost),
        ("duplicated", counts.duplicated),
        ("out of order", counts.out_of_order),
        ("misplaced", counts.misplaced),
    ]


def _tone(count: int) -> Tone:
    return Tone.BAD if count else Tone.GOOD


def _bars(report: AuditReport) -> Iterator[Part]:
    stored = tuple(
        Bar(str(entry.partition), entry.counts.stored, Tone.PLAIN if entry.counts.clean else Tone.BAD)
        for entry in report.partitions
    )
    note = "" if report.clean else "partitions with findings are red"
    yield BarPlot("Records stored per partition", stored, note=note)
    lost = tuple(
        Bar(str(entry.partition), entry.counts.lost, Tone.BAD) for entry in report.partitions if entry.counts.lost
    )
    if lost:
        yield BarPlot("Records lost per partition", lost)


def _places(audit: TopicAudit) -> Iterator[Part]:
    spread = audit.spread
    kinds = (
        Stack("duplicated", spread.duplicated, Tone.BAD),
        Stack("out of order", spread.out_of_order, Tone.WARNING),
    )
    found = tuple(kind for kind in kinds if any(kind.counts))
    if found:
        title = " and ".join(kind.name for kind in found).capitalize() + " over offsets"
        yield Histogram(title, spread.bins.edges, found, x_label="offset", y_label="records", note="all partitions")
    gaps = [(str(entry.partition), gap) for entry in audit.report.partitions for gap in entry.gaps]
    if gaps:
        yield from _missing(gaps, audit.report.total.lost)
    rows = tuple((str(entry.partition), example) for entry in audit.report.partitions for example in entry.examples)
    if rows:
        note = "the first of each partition; the counts are complete"
        yield Table("Findings", ("partition", "finding"), rows, note=note, folded=len(rows) > MAX_OPEN_ROWS)


def _missing(gaps: list[tuple[str, Gap]], lost: int) -> Iterator[Part]:
    named = sum(len(gap) for _, gap in gaps)
    note = "" if named == lost else f"{named:,} of {lost:,} missing records; those of the first gaps of each partition"
    bins = Bins.over(min(gap.first for _, gap in gaps), max(gap.last for _, gap in gaps) + 1)
    counts = [0] * bins.count
    for _, gap in gaps:
        for index in range(bins.index(gap.first), bins.index(gap.last) + 1):
            low, high = bins.edges[index : index + 2]
            counts[index] += min(gap.last + 1, high) - max(gap.first, low)
    stack = Stack("missing", tuple(counts), Tone.BAD)
    yield Histogram(
        "Missing numbers", bins.edges, (stack,), x_label="number within its stream", y_label="records", note=note
    )
    rows = tuple((gap.stream, where, gap.first, gap.last, len(gap)) for where, gap in gaps)
    yield Table(
        "Gaps",
        ("stream", "partition", "first missing", "last missing", "records"),
        rows,
        note=note,
        folded=len(rows) > MAX_OPEN_ROWS,
    )
