"""What a report is made of: plain values that say what is shown, not how. Pure.

page("Audit of orders", [
    Section("Verdict", (Verdict(Tone.GOOD, "Nothing is missing"), Tiles((Tile("sent", 1_000_000),)))),
    Section("Throughput", (LinePlot("records per second", series=(Series("sent", points),), marks=kills),)),
])
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_ROWS = 500
"""Rows that a table shows; it says how many it leaves out."""
MAX_BARS = 40
"""Bars that a plot shows; the smallest beyond it are summed up in one."""


class Tone(StrEnum):
    """What something means to the reader; colours, and marks that need no colour, follow from it."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"


class Unit(StrEnum):
    COUNT = "count"
    SECONDS = "seconds"
    BYTES = "bytes"
    MOMENT = "moment"
    """Milliseconds since 1970, shown as UTC."""


Number = int | float


@dataclass(frozen=True, slots=True)
class Toned:
    """A cell of a table that means something."""

    value: str | Number
    tone: Tone


Cell = str | Number | Toned | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The banner: is all good, and if not, what is wrong."""

    tone: Tone
    headline: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tile:
    """One key figure."""

    label: str
    value: str | Number
    note: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Tiles:
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, parted by empty lines; `backticks` make code."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """The first column names its row. `total` is a last row that stands out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] | None = None
    note: str = ""
    folded: bool = False
    """Shown only when the reader opens it."""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: Number
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Horizontal bars, in the given order."""

    title: str
    bars: tuple[Bar, ...]
    unit: Unit = Unit.COUNT
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a line, in the order of x."""

    name: str
    points: tuple[tuple[Number, Number], ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Mark:
    """An event on the x axis of a plot: a kill, a restart."""

    at: Number
    label: str
    tone: Tone = Tone.BAD


@dataclass(frozen=True, slots=True)
class LinePlot:
    title: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    x_label: str = "seconds"
    y_label: str = ""
    x_unit: Unit = Unit.SECONDS
    y_unit: Unit = Unit.COUNT
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stack:
    """One kind of thing that a histogram counts; the counts are one fewer than the histogram's edges."""

    name: str
    counts: tuple[int, ...]
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between neighbouring edges, kinds stacked upon each other."""

    title: str
    edges: tuple[Number, ...]
    stacks: tuple[Stack, ...]
    x_label: str = ""
    y_label: str = ""
    x_unit: Unit = Unit.COUNT
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted: a process that ran, an outage."""

    start: float
    end: float
    label: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment. BAD is drawn as a cross, GOOD as a triangle, the others as a dot."""

    at: float
    label: str
    tone: Tone = Tone.BAD


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    spans: tuple[Span, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over one axis of seconds since the start."""

    title: str
    lanes: tuple[Lane, ...]
    note: str = ""


Part = Verdict | Tiles | Prose | Table | BarPlot | LinePlot | Histogram | Timeline


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    parts: tuple[Part, ...]
