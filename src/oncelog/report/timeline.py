"""A timeline: lanes with what lasted and what happened, over one axis of seconds. Pure."""

from __future__ import annotations

from oncelog.report.drawing import CHARACTER_WIDTH, RIGHT, WIDTH, figure, numbers_of, picture, text, x_axis
from oncelog.report.markup import Markup, element
from oncelog.report.numbers import Scale, full, scale
from oncelog.report.tables import draw_table
from oncelog.report.values import Event, Lane, Span, Timeline, Tone, Unit

LANE_STEP = 44
BAND_HEIGHT = 12
BAND_TOP = 22
AXIS_HEIGHT = 44


def draw_timeline(timeline: Timeline) -> Markup:
    left = 16 + CHARACTER_WIDTH * 1.1 * max((len(lane.name) for lane in timeline.lanes), default=0)
    moments = [moment for lane in timeline.lanes for moment in _moments(lane)]
    across = scale([0.0, *moments], left, WIDTH - RIGHT, tight=True)
    bottom = LANE_STEP * len(timeline.lanes) + 6
    drawn = x_axis(across, bottom, Unit.SECONDS, "", left=left)
    for index, lane in enumerate(timeline.lanes):
        drawn.append(_lane(lane, across, index * LANE_STEP, left))
    happened = sorted((event.at, lane.name, event.label) for lane in timeline.lanes for event in lane.events)
    description = f"{len(timeline.lanes)} lanes, {len(happened)} events: " + "; ".join(
        f"{name}: {label} at {full(at, Unit.SECONDS)}" for at, name, label in happened
    )
    rows = [(full(round(at, 3), Unit.SECONDS), name, label) for at, name, label in happened]
    numbers = numbers_of(timeline.title, ("when", "where", "what"), rows)
    drawing = picture(timeline.title, description, bottom + AXIS_HEIGHT - 16, *drawn)
    return figure(timeline.title, timeline.note, drawing, draw_table(numbers))


def _moments(lane: Lane) -> list[float]:
    return [event.at for event in lane.events] + [at for span in lane.spans for at in (span.start, span.end)]


def _lane(lane: Lane, across: Scale, top: float, left: float) -> Markup:
    middle = top + BAND_TOP + BAND_HEIGHT / 2
    rail = element("line", {"x1": left, "x2": WIDTH - RIGHT, "y1": middle, "y2": middle, "class": "grid"})
    drawn = [text(left - 12, middle + 4, lane.name, "tick end strong"), rail]
    drawn += [_span(span, across, top + BAND_TOP) for span in lane.spans]
    free_from = left
    for event in sorted(lane.events, key=lambda each: each.at):
        x = across(event.at)
        words = f"{lane.name}: {event.label}, {full(round(event.at, 3), Unit.SECONDS)}"
        drawn.append(
            element("g", {"class": f"event tone-{event.tone}"}, element("title", {}, words), _sign(event, x, middle))
        )
        width = len(event.label) * CHARACTER_WIDTH
        start = min(max(x - width / 2, left), WIDTH - RIGHT - width)
        if start >= free_from:
            drawn.append(text(start, top + BAND_TOP - 6, event.label, f"tick tone-{event.tone}"))
            free_from = start + width + CHARACTER_WIDTH
    return element("g", {}, *drawn)


def _span(span: Span, across: Scale, top: float) -> Markup:
    start, end = across(span.start), across(span.end)
    shape = {"x": start, "y": top, "width": max(end - start, 1.0), "height": BAND_HEIGHT, "rx": 3}
    words = (
        f"{span.label or 'from'} {full(round(span.start, 3), Unit.SECONDS)} to {full(round(span.end, 3), Unit.SECONDS)}"
    )
    return element("rect", {**shape, "class": f"span tone-{span.tone}"}, element("title", {}, words))


def _sign(event: Event, x: float, y: float) -> Markup:
    """A shape of its own for each meaning: colours alone do not reach everyone."""
    match event.tone:
        case Tone.BAD:
            return element("path", {"d": f"M{x - 5:.1f} {y - 5:.1f} l10 10 m-10 0 l10 -10", "class": "cross"})
        case Tone.GOOD:
            return element("path", {"d": f"M{x - 4:.1f} {y - 6:.1f} l9 6 l-9 6 z"})
    return element("circle", {"cx": x, "cy": y, "r": 5})
