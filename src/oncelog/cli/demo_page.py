"""The report of the demo: what became of the orders, how fast they came through, and what was done meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.audit.account import Counts
from oncelog.cli.demo_chronicle import Chronicle
from oncelog.cli.demo_outcome import Evidence, Tally, complaints
from oncelog.report import (
    Event,
    LinePlot,
    Mark,
    Prose,
    Section,
    Table,
    Tile,
    Tiles,
    Timeline,
    Tone,
    Toned,
    Verdict,
    page,
)

COLUMNS = ("where", "sent", "there", "lost", "duplicated", "out of order")
LANES_NOTE = "a cross is a kill, a bar a life; Spark's workers from the second act on, and when their driver is ready"
HOW_TO_READ = (
    "Each order carries an id `STREAM/NUMBER`. The audit looks for every id that a producer was told is stored: in the "
    "topic, in what was made of it, and among the rows of a database.\n\n"
    "`lost` are ids that are nowhere, `duplicated` those that are there again, `out of order` those that stand behind "
    "a later one of their stream. What is called the plain way shows that the faults were real: the same records, the "
    "same faults, and none of the guarantees."
)


def demo_page(evidence: Evidence, tally: Tally, chronicle: Chronicle) -> str:
    sections = [
        Section("Verdict", (_verdict(evidence, tally), _tiles(evidence, tally))),
        Section("From send() to rows of a database", tuple(_tables(evidence))),
        Section("What happened", (_timeline(chronicle), _throughput(chronicle))),
        Section("How to read this", (Prose(HOW_TO_READ),)),
    ]
    return page("oncelog demo", sections, subtitle=f"Faults of seed {tally.seed}, kills with SIGKILL")


def _verdict(evidence: Evidence, tally: Tally) -> Verdict:
    told = tuple(complaints(evidence, tally))
    if evidence.is_clean and not told:
        return Verdict(Tone.GOOD, "Nothing is lost, nothing is duplicated, everything is in order")
    return Verdict(Tone.BAD, "The audit found something", told)


def _tiles(evidence: Evidence, tally: Tally) -> Tiles:
    spark = (
        (Tile("kills of Spark's driver", tally.driver_kills), Tile("kills of its workers", tally.worker_kills))
        if evidence.shipped
        else ()
    )
    return Tiles(
        (
            Tile("orders sent", sum(counts.sent for counts in _first_counts(evidence))),
            Tile("kills of the broker", tally.kills),
            *spark,
            Tile("kills of processors", tally.processor_kills),
            Tile("kills of consumers", tally.member_kills),
            Tile("answers lost", tally.answers_lost),
            Tile("connections cut", tally.connections_cut),
            Tile("duplicates recognised", tally.duplicates_recognised, "batches"),
        )
    )


def _first_counts(evidence: Evidence) -> list[Counts]:
    return [evidence.stored.total, *([evidence.shipped.stored.total] if evidence.shipped else [])]


def _tables(evidence: Evidence) -> Iterator[Table]:
    if evidence.shipped:
        rows = tuple(_row(name, report.total) for name, report in evidence.shipped.places)
        yield Table("Spark: topic to topic to table", COLUMNS, rows)
    ours = (
        _row("in the first topic", evidence.stored.total),
        _row("payments, read_committed", evidence.processed.total),
        _row("booked with oncelog.once", evidence.booked.total),
    )
    yield Table("Processors in transactions, consumers that book once", COLUMNS, ours)
    plain = (
        _row("in the first topic, enable.idempotence=false", evidence.stored_plainly.total),
        _row("payments, read_uncommitted", evidence.processed_plainly.total),
        _row("booked with automatic commits", evidence.booked_plainly.total),
    )
    yield Table("The plain way, through the same faults", COLUMNS, plain)


def _row(name: str, counts: Counts) -> tuple[str | int | Toned, ...]:
    found = (counts.lost, counts.duplicated, counts.out_of_order)
    return (name, counts.sent, counts.stored, *(Toned(count, Tone.BAD if count else Tone.GOOD) for count in found))


def _timeline(chronicle: Chronicle) -> Timeline:
    return Timeline("Who ran, and who was killed", chronicle.lanes(), note=LANES_NOTE)


def _throughput(chronicle: Chronicle) -> LinePlot:
    kills = tuple(
        Mark(event.at, lane.name, event.tone) for lane in chronicle.lanes() for event in lane.events if _is_kill(event)
    )
    return LinePlot("Orders per second", chronicle.rates(), kills, y_label="orders/s", note="dashed lines are kills")


def _is_kill(event: Event) -> bool:
    return event.tone is Tone.BAD
