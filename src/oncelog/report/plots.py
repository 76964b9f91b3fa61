"""Bars, lines and histograms as inline SVG, each with the table of its numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.report.drawing import (
    BOTTOM,
    CHARACTER_WIDTH,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    colour,
    figure,
    key_to,
    marks_on,
    numbers_of,
    picture,
    text,
    x_axis,
    y_axis,
)
from oncelog.report.markup import Markup, element
from oncelog.report.numbers import Scale, full, scale
from oncelog.report.tables import draw_table
from oncelog.report.values import MAX_BARS, Bar, BarPlot, Histogram, LinePlot, Number, Series, Unit

HEIGHT = 270
BAR_HEIGHT, BAR_STEP = 16, 24
LABEL_CHARACTERS = 34
"""Of a bar's name; the whole name is in the tooltip and in the table."""


def draw_bars(plot: BarPlot) -> Markup:
    bars = _largest(plot.bars)
    names = [_cut(bar.label) for bar in bars]
    values = [full(bar.value, plot.unit) for bar in bars]
    left = 12 + CHARACTER_WIDTH * max(map(len, names), default=0)
    right = 12 + CHARACTER_WIDTH * 1.1 * max(map(len, values), default=0)
    across = scale([bar.value for bar in bars], left, WIDTH - right, from_zero=True, tight=True)
    drawn = []
    for index, (bar, name, value) in enumerate(zip(bars, names, values, strict=True)):
        y = index * BAR_STEP + 4
        start, end = sorted((across(0), across(bar.value)))
        shape = {"x": start, "y": y, "width": max(end - start, 0.75), "height": BAR_HEIGHT, "rx": 3}
        rect = element("rect", {**shape, "class": colour(0, bar.tone)})
        drawn.append(
            element(
                "g",
                {},
                element("title", {}, f"{bar.label}: {value}"),
                text(left - 8, y + 12.5, name, "tick end"),
                rect,
                text(end + 6, y + 12.5, value, "tick strong"),
            )
        )
    description = f"{len(plot.bars)} bars." + (f" The longest is {_longest(bars, plot.unit)}." if bars else "")
    drawing = picture(plot.title, description, max(len(bars) * BAR_STEP + 4, BAR_STEP), *drawn)
    rows = [(bar.label, full(bar.value, plot.unit)) for bar in plot.bars]
    return figure(plot.title, plot.note, drawing, draw_table(numbers_of(plot.title, ("name", "value"), rows)))


def _largest(bars: tuple[Bar, ...]) -> list[Bar]:
    if len(bars) <= MAX_BARS:
        return list(bars)
    order = sorted(range(len(bars)), key=lambda index: -abs(bars[index].value))
    kept = sorted(order[: MAX_BARS - 1])
    rest = sum(bars[index].value for index in order[MAX_BARS - 1 :])
    return [*(bars[index] for index in kept), Bar(f"{len(bars) - len(kept)} others together", rest)]


def _longest(bars: Sequence[Bar], unit: Unit) -> str:
    longest = max(bars, key=lambda bar: bar.value)
    return f"{longest.label} with {full(longest.value, unit)}"


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_CHARACTERS else label[: LABEL_CHARACTERS - 1] + "…"


def plotted_lines(plot: LinePlot) -> list[Markup]:
    """The lines with their axes and marks, `HEIGHT` high: what a picture may hold several of."""
    bottom = HEIGHT - BOTTOM
    points = [point for series in plot.series for point in series.points]
    across = scale([x for x, _ in points] + [mark.at for mark in plot.marks], LEFT, WIDTH - RIGHT, tight=True)
    up = scale([y for _, y in points], bottom, TOP, from_zero=True)
    drawn = [*y_axis(up, plot.y_unit, ""), *x_axis(across, bottom, plot.x_unit, plot.x_label)]
    drawn += marks_on(plot.marks, across, plot.x_unit, bottom)
    return drawn + [_line(series, index, across, up) for index, series in enumerate(plot.series)]


def draw_lines(plot: LinePlot) -> Markup:
    drawn = plotted_lines(plot)
    description = f"{plot.y_label or plot.title} over {plot.x_label}: " + "; ".join(map(_course, plot.series))
    if plot.marks:
        description += f"; {len(plot.marks)} events are marked"
    key = key_to([(series.name, series.tone) for series in plot.series]) if len(plot.series) > 1 else None
    rows = [
        (series.name, full(x, plot.x_unit), full(y, plot.y_unit)) for series in plot.series for x, y in series.points
    ]
    rows += [(mark.label, full(mark.at, plot.x_unit), "event") for mark in plot.marks]
    numbers = numbers_of(plot.title, ("series", plot.x_label or "x", plot.y_label or "y"), rows)
    return figure(plot.title, plot.note, picture(plot.title, description, HEIGHT, *drawn), draw_table(numbers), key)


def _line(series: Series, index: int, across: Scale, up: Scale) -> Markup:
    kind = colour(index, series.tone)
    places = _thinned([(across(x), up(y)) for x, y in series.points])
    if len(places) == 1:
        return element("circle", {"cx": places[0][0], "cy": places[0][1], "r": 3, "class": kind})
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return element(
        "g", {}, element("title", {}, series.name), element("polyline", {"points": path, "class": f"line {kind}"})
    )


def _thinned(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each column of pixels the first, highest, lowest and last point: looks the same, and is bounded."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for place in places:
        columns.setdefault(int(place[0]), []).append(place)
    thin: list[tuple[float, float]] = []
    for column in columns.values():
        chosen = {0, len(column) - 1}
        chosen |= {pick(range(len(column)), key=lambda at: column[at][1]) for pick in (min, max)}
        thin += [column[at] for at in sorted(chosen)]
    return thin


def _course(series: Series) -> str:
    if not series.points:
        return f"{series.name} has no points"
    values = [y for _, y in series.points]
    return f"{series.name} between {full(min(values), Unit.COUNT)} and {full(max(values), Unit.COUNT)}"


def draw_histogram(plot: Histogram) -> Markup:
    for stack in plot.stacks:
        if len(stack.counts) != len(plot.edges) - 1:
            raise ValueError(f"{stack.name}: {len(stack.counts)} counts need {len(stack.counts) + 1} edges")
    bottom = HEIGHT - BOTTOM
    heights = [sum(counts) for counts in zip(*(stack.counts for stack in plot.stacks), strict=True)]
    across = scale(plot.edges, LEFT, WIDTH - RIGHT, tight=True)
    up = scale(heights, bottom, TOP, from_zero=True)
    drawn = [*y_axis(up, Unit.COUNT, plot.y_label), *x_axis(across, bottom, plot.x_unit, plot.x_label)]
    below = [0] * len(heights)
    for index, stack in enumerate(plot.stacks):
        for at, count in enumerate(stack.counts):
            if count:
                words = f"{stack.name}: {count:,} in {_between(plot, at)}"
                drawn.append(
                    _block(across, up, plot.edges[at : at + 2], (below[at], count), colour(index, stack.tone), words)
                )
                below[at] += count
    totals = ", ".join(f"{sum(stack.counts):,} {stack.name}" for stack in plot.stacks)
    key = key_to([(stack.name, stack.tone) for stack in plot.stacks]) if len(plot.stacks) > 1 else None
    rows = [
        (_between(plot, at), *(f"{stack.counts[at]:,}" for stack in plot.stacks))
        for at, high in enumerate(heights)
        if high
    ]
    numbers = numbers_of(plot.title, (plot.x_label or "range", *(stack.name for stack in plot.stacks)), rows)
    drawing = picture(plot.title, f"{plot.title}: {totals}", HEIGHT, *drawn)
    return figure(plot.title, plot.note, drawing, draw_table(numbers), key)


def _between(plot: Histogram, at: int) -> str:
    return f"{full(plot.edges[at], plot.x_unit)} to {full(plot.edges[at + 1], plot.x_unit)}"


def _block(across: Scale, up: Scale, edges: Sequence[Number], rows: tuple[int, int], kind: str, words: str) -> Markup:
    left, right = across(edges[0]), across(edges[1])
    top, bottom = up(rows[0] + rows[1]), up(rows[0])
    gap = 1.0 if right - left > 4 else 0.0
    # Even one finding among millions must be seen.
    height = max(bottom - top, 1.5)
    shape = {"x": left + gap / 2, "y": bottom - height, "width": max(right - left - gap, 0.75), "height": height}
    return element("rect", {**shape, "class": kind}, element("title", {}, words))
