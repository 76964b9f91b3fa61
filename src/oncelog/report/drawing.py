"""The common ground of all plots: the picture with its title and description, axes, marks, keys, captions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.report.markup import Markup, element
from oncelog.report.numbers import Scale, full, short
from oncelog.report.values import Mark, Table, Tone, Unit

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 30, 44
"""Around what is plotted: for the labels of the axes, and of marks."""
CHARACTER_WIDTH = 7.2
"""Of a label, about."""
SERIES_COLOURS = 6

TITLED = {Tone.GOOD: "good", Tone.BAD: "bad", Tone.WARNING: "warning"}


def picture(title: str, description: str, height: float, *children: str) -> Markup:
    """What cannot be seen is read out: the title, and one sentence that tells what the plot shows."""
    shape = {"viewBox": f"0 0 {WIDTH} {height:g}", "role": "img", "class": "plot"}
    return element("svg", shape, element("title", {}, title), element("desc", {}, description), *children)


def figure(title: str, note: str, drawn: Markup, numbers: Markup, key: Markup | None = None) -> Markup:
    caption = [element("strong", {}, title)]
    if note:
        caption.append(element("span", {"class": "note"}, note))
    scrolled = element("div", {"class": "wide", "tabindex": "0", "role": "group", "aria-label": title}, drawn)
    return element("figure", {}, element("figcaption", {}, *caption), *([key] if key else []), scrolled, numbers)


def text(x: float, y: float, words: str, kind: str = "", *, rotated: bool = False) -> Markup:
    turn = f"rotate(-90 {x:g} {y:g})" if rotated else None
    return element("text", {"x": x, "y": y, "class": kind or None, "transform": turn}, words)


def colour(index: int, tone: Tone) -> str:
    """The class that colours a series: by what it means, else by its place."""
    return f"tone-{tone}" if tone in TITLED else f"series-{index % SERIES_COLOURS}"


def key_to(names: Sequence[tuple[str, Tone]]) -> Markup:
    entries = [
        element("li", {}, element("span", {"class": f"swatch {colour(index, tone)}"}), name)
        for index, (name, tone) in enumerate(names)
    ]
    return element("ul", {"class": "key"}, *entries)


def y_axis(scale: Scale, unit: Unit, label: str) -> list[Markup]:
    drawn = [text(LEFT, TOP - 12, label, "label")] if label else []
    for tick in scale.ticks():
        y = scale(tick)
        drawn.append(element("line", {"x1": LEFT, "x2": WIDTH - RIGHT, "y1": y, "y2": y, "class": "grid"}))
        drawn.append(text(LEFT - 8, y + 4, short(_whole(tick), unit), "tick end"))
    return drawn


def x_axis(scale: Scale, bottom: float, unit: Unit, label: str, *, left: float = LEFT) -> list[Markup]:
    drawn = [element("line", {"x1": left, "x2": WIDTH - RIGHT, "y1": bottom, "y2": bottom, "class": "axis"})]
    for tick in scale.ticks(8):
        x = scale(tick)
        drawn.append(element("line", {"x1": x, "x2": x, "y1": bottom, "y2": bottom + 4, "class": "axis"}))
        drawn.append(text(x, bottom + 18, short(_whole(tick), unit), "tick middle"))
    if label:
        drawn.append(text((left + WIDTH - RIGHT) / 2, bottom + 36, label, "label middle"))
    return drawn


def marks_on(marks: Iterable[Mark], scale: Scale, unit: Unit, bottom: float) -> list[Markup]:
    """A dashed line for each; its label where the one before leaves room, and always in the tooltip."""
    drawn: list[Markup] = []
    free_from = 0.0
    for mark in sorted(marks, key=lambda each: each.at):
        x = scale(mark.at)
        kind = f"mark tone-{mark.tone}"
        line = element("line", {"x1": x, "x2": x, "y1": TOP, "y2": bottom, "class": kind})
        drawn.append(element("g", {}, element("title", {}, f"{mark.label}, {full(mark.at, unit)}"), line))
        width = len(mark.label) * CHARACTER_WIDTH
        start = min(x - width / 2, WIDTH - width)
        if start >= free_from:
            drawn.append(text(start, TOP - 5, mark.label, f"tick mark-label tone-{mark.tone}"))
            free_from = start + width + CHARACTER_WIDTH
    return drawn


def numbers_of(title: str, columns: tuple[str, ...], rows: Iterable[Sequence[str]]) -> Table:
    """The table behind a plot, for those who want the numbers or cannot see the picture."""
    return Table(f"{title}: the numbers", columns, tuple(tuple(row) for row in rows), folded=True)


def _whole(tick: float) -> float | int:
    return round(tick) if abs(tick - round(tick)) < 1e-9 else tick
