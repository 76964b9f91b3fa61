"""A report as one HTML file: nothing is loaded, nothing runs, light and dark, on a phone and on paper. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from oncelog.report.markup import Markup, element, join
from oncelog.report.numbers import exact
from oncelog.report.plots import draw_bars, draw_histogram, draw_lines
from oncelog.report.style import STYLE
from oncelog.report.tables import draw_table
from oncelog.report.timeline import draw_timeline
from oncelog.report.values import (
    BarPlot,
    Histogram,
    LinePlot,
    Part,
    Prose,
    Section,
    Table,
    Tile,
    Tiles,
    Timeline,
    Tone,
    Verdict,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Should markup ever slip through, it still runs no script and loads nothing."""

SIGNS = {Tone.GOOD: "✓", Tone.BAD: "✕", Tone.WARNING: "!", Tone.PLAIN: "·"}


def page(title: str, sections: Iterable[Section], *, subtitle: str = "", footer: str = "") -> str:
    """The whole file, as text; write it as UTF-8."""
    head = [
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, title),
        element("style", {}, Markup(STYLE)),
    ]
    top = [element("h1", {}, title), *([element("p", {"class": "subtitle"}, subtitle)] if subtitle else [])]
    body = [
        element("header", {}, *top),
        element("main", {}, *(_section(section, number) for number, section in enumerate(sections, 1))),
        *([element("footer", {}, footer)] if footer else []),
    ]
    return "<!DOCTYPE html>\n" + element("html", {"lang": "en"}, element("head", {}, *head), element("body", {}, *body))


def _section(section: Section, number: int) -> Markup:
    heading = element("h2", {"id": f"section-{number}"}, section.title)
    return element("section", {"aria-labelledby": f"section-{number}"}, heading, *map(_part, section.parts))


def _part(part: Part) -> Markup:
    return DRAWERS[type(part)](part)


def _verdict(verdict: Verdict) -> Markup:
    sign = element("span", {"class": "sign", "aria-hidden": "true"}, SIGNS[verdict.tone])
    reasons = [element("ul", {}, *(element("li", {}, reason) for reason in verdict.reasons))] if verdict.reasons else []
    words = element("div", {}, element("p", {"class": "headline"}, verdict.headline), *reasons)
    return element("div", {"class": f"verdict tone-{verdict.tone}", "role": "status"}, sign, words)


def _tiles(tiles: Tiles) -> Markup:
    return element("dl", {"class": "tiles"}, *map(_tile, tiles.tiles))


def _tile(tile: Tile) -> Markup:
    value = tile.value if isinstance(tile.value, str) else exact(tile.value)
    note = [element("dd", {"class": "note"}, tile.note)] if tile.note else []
    return element(
        "div", {"class": f"tile tone-{tile.tone}"}, element("dt", {}, tile.label), element("dd", {}, value), *note
    )


def _prose(prose: Prose) -> Markup:
    return join(*(_paragraph(text) for text in re.split(r"\n\s*\n", prose.text.strip())))


def _paragraph(text: str) -> Markup:
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backtick without its partner is only a backtick
        return element("p", {}, text)
    return element("p", {}, *(element("code", {}, piece) if at % 2 else piece for at, piece in enumerate(pieces)))


DRAWERS: dict[type[Part], Callable[[Any], Markup]] = {
    Verdict: _verdict,
    Tiles: _tiles,
    Prose: _prose,
    Table: draw_table,
    BarPlot: draw_bars,
    LinePlot: draw_lines,
    Histogram: draw_histogram,
    Timeline: draw_timeline,
}
