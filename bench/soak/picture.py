"""The picture of a soak: one SVG file with a panel for each thing that should stay where it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.soak.samples import Sample
from bench.soak.trend import Trend
from oncelog.report.drawing import LEFT, RIGHT, WIDTH, text
from oncelog.report.markup import Markup, element
from oncelog.report.plots import HEIGHT, plotted_lines
from oncelog.report.style import STYLE
from oncelog.report.values import LinePlot, Series, Tone, Unit

MARGIN, HEAD, PANEL_HEAD = 20, 84, 34
PANEL = PANEL_HEAD + HEIGHT
COUNTED = ("producer ids", "transactional ids", "groups", "topics", "connections")
OWN_STYLE = ".plot rect.ground { fill: var(--ground); opacity: 1; } .plot text.head { font-size: 20px; }"


def draw(samples: Sequence[Sample], trends: Sequence[Trend]) -> str:
    panels = [_panel(plot, index) for index, plot in enumerate(_plots(samples, trends))]
    height = HEAD + len(panels) * PANEL + MARGIN
    width = WIDTH + 2 * MARGIN
    shape = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "width": width}
    slopes = ", ".join(f"{trend.name} {trend.per_hour:+.1f} {trend.unit}/h" for trend in trends)
    title = f"{_minutes(samples):.0f} minutes of mixed load: memory, descriptors, disk and processor of the broker"
    return element(
        "svg",
        {**shape, "height": height, "role": "img", "class": "plot"},
        element("title", {}, title),
        element("desc", {}, "; ".join(map(str, trends)) or "too short to tell"),
        element("style", {}, Markup(STYLE + OWN_STYLE)),
        Markup(f'<rect width="{width}" height="{height}" class="ground"/>'),
        text(MARGIN, 34, f"{_minutes(samples):.0f} minutes of mixed load", "head strong"),
        text(MARGIN, 56, _used_up(samples[-1]), "label"),
        text(MARGIN, 74, f"In the second half: {slopes}", "label"),
        *panels,
    )


def _plots(samples: Sequence[Sample], trends: Sequence[Trend]) -> list[LinePlot]:
    def line(name: str, values: Sequence[float], tone: Tone = Tone.PLAIN) -> Series:
        points = tuple((sample.at_s / 60, value) for sample, value in zip(samples, values, strict=True))
        return Series(name, points, tone)

    memory = [line("resident", [s.rss_mb for s in samples]), line("proportional (PSS)", [s.pss_mb for s in samples])]
    memory += [_fitted(trend, samples) for trend in trends if trend.name == "memory"]
    held = [
        line("descriptors", [s.descriptors for s in samples]),
        line("sockets", [s.sockets for s in samples]),
        line("threads", [s.threads for s in samples]),
    ]
    counted = [line(name, [s.counts.get(name, 0) for s in samples]) for name in COUNTED]
    titled = (
        ("Memory, MB", memory),
        ("Descriptors, sockets and threads", held),
        ("Disk, MB", [line("disk", [s.disk_mb for s in samples])]),
        ("Processor, percent of one core", [line("processor", [s.cpu * 100 for s in samples])]),
        ("Used up so far", counted),
    )
    return [LinePlot(title, tuple(series), x_label="minutes", x_unit=Unit.COUNT) for title, series in titled]


def _fitted(trend: Trend, samples: Sequence[Sample]) -> Series:
    ends_s = (samples[-1].at_s / 2, samples[-1].at_s)
    return Series(f"trend {trend.per_hour:+.1f} MB/h", tuple((at_s / 60, trend.at(at_s)) for at_s in ends_s), Tone.BAD)


def _panel(plot: LinePlot, index: int) -> Markup:
    drawn = [text(LEFT, 16, plot.title, "strong")]
    x = float(WIDTH - RIGHT)
    for place, series in reversed(list(enumerate(plot.series))):  # the key, from the right
        kind = f"tone-{series.tone}" if series.tone is not Tone.PLAIN else f"series-{place}"
        drawn.append(text(x, 16, series.name, "end"))
        x -= 6.6 * len(series.name) + 16
        drawn.append(element("rect", {"x": x, "y": 7, "width": 10, "height": 10, "rx": 2, "class": kind}))
        x -= 14
    lines = element("g", {"transform": f"translate(0 {PANEL_HEAD - 20})"}, *plotted_lines(plot))
    place = f"translate({MARGIN} {HEAD + index * PANEL})"
    return element("g", {"transform": place}, *drawn, lines)


def _used_up(last: Sample) -> str:
    used = ", ".join(f"{last.counts.get(name, 0):,} {name}" for name in COUNTED)
    return f"{used}; {last.failures} failures"


def _minutes(samples: Sequence[Sample]) -> float:
    return samples[-1].at_s / 60
