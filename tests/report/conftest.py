"""A page with one of everything, for the tests that look at whole pages."""

from __future__ import annotations

import pytest

from oncelog.report import (
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
    Verdict,
)


def one_of_everything(name: str = "orders") -> tuple[Part, ...]:
    """Every part, with `name` wherever a part takes words."""
    return (
        Verdict(Tone.BAD, name, (name,)),
        Tiles((Tile(name, 3_840_112, name), Tile(name, name, tone=Tone.GOOD))),
        Prose(f"{name}\n\n`{name}` and {name}"),
        Table(name, (name, name), ((name, 1), (Toned(name, Tone.BAD), None)), total=(name, 2.5), note=name),
        Table(name, (name,), ((name,),), folded=True),
        BarPlot(name, (Bar(name, 70_123), Bar(name, 0, Tone.BAD)), note=name),
        LinePlot(
            name,
            (Series(name, ((0, 1), (1, 4.25))), Series(name, ((0.5, 2),))),
            (Mark(0.5, name),),
            name,
            name,
            note=name,
        ),
        Histogram(name, (0, 10, 20), (Stack(name, (3, 0)), Stack(name, (1, 2), Tone.BAD)), name, name, note=name),
        Timeline(
            name,
            (
                Lane(
                    name, (Span(0, 2, name),), tuple(Event(index + 0.5, name, tone) for index, tone in enumerate(Tone))
                ),
                Lane(name),
            ),
            note=name,
        ),
    )


@pytest.fixture
def everything() -> list[Section]:
    return [Section("orders", one_of_everything())]
