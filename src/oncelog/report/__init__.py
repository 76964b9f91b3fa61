"""Reports for people: one HTML file each, made of values (`values`) by one pure function (`page`).

A file loads nothing, runs no script, and says all that it shows in words or tables too. Whatever goes in (names of
topics, ids of records) is text and never markup. Nothing here reads a topic, a clock or a file.
"""

from oncelog.report.page import page
from oncelog.report.values import (
    Bar,
    BarPlot,
    Event,
    Histogram,
    Lane,
    LinePlot,
    Mark,
    Part,
    Prose,
    Section,
    Series,
    Span,
    Stack,
    Table,
    Tile,
    Tiles,
    Timeline,
    Tone,
    Toned,
    Unit,
    Verdict,
)

__all__ = [
    "Bar",
    "BarPlot",
    "Event",
    "Histogram",
    "Lane",
    "LinePlot",
    "Mark",
    "Part",
    "Prose",
    "Section",
    "Series",
    "Span",
    "Stack",
    "Table",
    "Tile",
    "Tiles",
    "Timeline",
    "Tone",
    "Toned",
    "Unit",
    "Verdict",
    "page",
]
