"""Each part of a report: the numbers that it shows are the numbers that it was given."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

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
    Unit,
    Verdict,
    page,
)
from oncelog.report.values import MAX_BARS, MAX_ROWS


def drawn(part: Part) -> Element:
    section = ElementTree.fromstring(page("t", [Section("s", (part,))])).find("body/main/section")
    assert section is not None
    return section[1]


def rows(table: Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in table.findall(".//tbody/tr")]


def words(element: Element) -> list[str]:
    return ["".join(text.itertext()) for text in element.iter("text")]


def test_a_verdict_tells_its_reasons() -> None:
    banner = drawn(Verdict(Tone.BAD, "2 are lost", ("a/7 is missing", "a/8 is missing")))
    assert "tone-bad" in (banner.get("class") or "")
    assert [reason.text for reason in banner.iter("li")] == ["a/7 is missing", "a/8 is missing"]


def test_tiles_show_exact_numbers() -> None:
    tiles = drawn(Tiles((Tile("sent", 3_840_112), Tile("took", 1.5), Tile("mode", "exactly-once"))))
    assert [value.text for value in tiles.iter("dd")] == ["3,840,112", "1.5", "exactly-once"]


def test_prose_knows_paragraphs_and_code() -> None:
    section = ElementTree.fromstring(page("t", [Section("s", (Prose("one `two` <three>\n\nfour ` five"),))]))
    paragraphs = ["".join(paragraph.itertext()) for paragraph in section.iter("p")]
    assert paragraphs == ["one two <three>", "four ` five"]
    assert [code.text for code in section.iter("code")] == ["two"]


def test_a_table_has_headings_names_of_rows_and_numbers_to_the_right() -> None:
    table = drawn(Table("audit", ("place", "lost"), (("topic", Toned(1234567, Tone.BAD)),), total=("all", 1234567)))
    assert [head.get("scope") for head in table.iter("th")] == ["col", "col", "row", "row"]
    assert table.findtext(".//caption") == "audit"
    assert rows(table) == [["topic", "1,234,567"]]
    assert [cell.get("class") for cell in table.iter("td")] == ["number tone-bad", "number"]


def test_a_long_table_says_what_it_leaves_out() -> None:
    table = drawn(Table("many", ("n",), tuple((str(n),) for n in range(MAX_ROWS + 7))))
    assert len(rows(table)) == MAX_ROWS
    assert "7 more are left out" in "".join(table.itertext())


def test_a_row_must_fit_the_columns() -> None:
    with pytest.raises(ValueError, match="3 cells, the table 2 columns"):
        drawn(Table("t", ("a", "b"), (("x", 1, 2),)))


def test_bars_are_as_long_as_their_values() -> None:
    figure = drawn(BarPlot("records", (Bar("p-0", 100), Bar("p-1", 50), Bar("p-2", 0))))
    widths = [float(bar.get("width") or 0) for bar in figure.iter("rect")]
    assert widths[1] == pytest.approx(widths[0] / 2, rel=0.01)
    assert widths[2] < 1
    assert words(figure) == ["p-0", "100", "p-1", "50", "p-2", "0"]
    assert rows(figure) == [["p-0", "100"], ["p-1", "50"], ["p-2", "0"]]


def test_too_many_bars_are_summed_up_and_nothing_is_left_out() -> None:
    figure = drawn(BarPlot("records", tuple(Bar(f"p-{n}", n) for n in range(100))))
    shown = words(figure)
    assert len(shown) == 2 * MAX_BARS
    assert sum(int(value.replace(",", "")) for value in shown[1::2]) == sum(range(100))
    assert shown[-2] == f"{100 - MAX_BARS + 1} others together"


def test_a_line_has_its_points_and_marks() -> None:
    figure = drawn(
        LinePlot("rate", (Series("sent", ((0, 0), (10, 40_000), (20, 20_000))),), (Mark(10, "broker killed"),))
    )
    (line,) = figure.iter("polyline")
    places = [tuple(map(float, place.split(","))) for place in (line.get("points") or "").split()]
    assert places[1][0] == pytest.approx((places[0][0] + places[2][0]) / 2, abs=0.2)
    assert places[0][1] - places[1][1] == pytest.approx(2 * (places[0][1] - places[2][1]), abs=0.3)
    (mark,) = (each for each in figure.iter("line") if "mark" in (each.get("class") or ""))
    assert float(mark.get("x1") or 0) == pytest.approx(places[1][0], abs=0.2)
    assert "broker killed" in words(figure)
    assert rows(figure)[1] == ["sent", "10 s", "40,000"]


def test_a_million_points_make_a_bounded_line_that_keeps_its_peaks() -> None:
    points = tuple((n, 1_000 if n == 17_777 else n % 2) for n in range(50_000))
    figure = drawn(LinePlot("rate", (Series("sent", points),)))
    (line,) = figure.iter("polyline")
    heights = [float(place.split(",")[1]) for place in (line.get("points") or "").split()]
    assert len(heights) <= 4 * 760
    assert min(heights) < 40  # the one peak


@pytest.mark.parametrize("points", [(), ((5, 5),), ((5, 0), (5, 0))])
def test_a_line_of_nothing_or_of_one_point(points: tuple[tuple[int, int], ...]) -> None:
    assert drawn(LinePlot("rate", (Series("sent", points),))).find(".//svg") is not None


def test_what_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite numbers, found nan"):
        drawn(LinePlot("rate", (Series("sent", ((0, float("nan")),)),)))


def test_a_histogram_stacks_its_kinds() -> None:
    figure = drawn(Histogram("found", (0, 10, 20), (Stack("twice", (4, 0)), Stack("late", (4, 8)))))
    boxes = [(float(box.get("y") or 0), float(box.get("height") or 0)) for box in figure.iter("rect")]
    (first_y, first_height), (second_y, second_height), (third_y, third_height) = boxes
    assert second_y + second_height == pytest.approx(first_y)
    assert third_height == pytest.approx(first_height + second_height)
    assert third_y == pytest.approx(second_y)
    assert rows(figure) == [["0 to 10", "4", "4"], ["10 to 20", "0", "8"]]
    assert figure.findtext(".//desc") == "found: 4 twice, 12 late"


def test_one_finding_among_millions_is_seen() -> None:
    figure = drawn(Histogram("found", (0, 1, 2), (Stack("all", (10_000_000, 1)),)))
    assert all(float(box.get("height") or 0) >= 1 for box in figure.iter("rect"))


def test_counts_must_fit_the_edges() -> None:
    with pytest.raises(ValueError, match="2 counts need 3 edges"):
        drawn(Histogram("found", (0, 10), (Stack("twice", (1, 2)),)))


def test_a_histogram_over_time_shows_moments() -> None:
    figure = drawn(Histogram("t", (0, 3_600_000), (Stack("n", (1,)),), x_label="time", x_unit=Unit.MOMENT))
    assert rows(figure) == [["1970-01-01 00:00:00.000 to 1970-01-01 01:00:00.000", "1"]]


def test_a_timeline_has_a_lane_a_sign_and_a_row_for_each() -> None:
    lanes = (
        Lane("broker", (Span(0, 5), Span(6, 10)), (Event(5, "kill -9"), Event(6, "back", Tone.GOOD))),
        Lane("driver", (), (Event(2.25, "batch 1", Tone.PLAIN),)),
    )
    figure = drawn(Timeline("what was done", lanes))
    assert rows(figure) == [["2.25 s", "driver", "batch 1"], ["5 s", "broker", "kill -9"], ["6 s", "broker", "back"]]
    signs = [group.get("class") for group in figure.iter("g") if (group.get("class") or "").startswith("event")]
    assert signs == ["event tone-bad", "event tone-good", "event tone-plain"]
    assert len(list(figure.iter("rect"))) == 2
