from __future__ import annotations

from oncelog.faults.rules import Direction, Rule
from oncelog.faults.tally import Counts, Tally


def test_counts_add_up() -> None:
    assert Counts(forwarded=1, cut=2) + Counts(forwarded=3, stalled=4) == Counts(forwarded=4, cut=2, stalled=4)


def test_a_report_is_a_snapshot_under_kafkas_names() -> None:
    tally = Tally()
    tally.connections = 2
    tally.of(Direction.REQUEST, 0).forwarded += 5
    tally.of(Direction.RESPONSE, 0).dropped += 1
    tally.of(Direction.RESPONSE, 1_234).forwarded += 1
    rules = (Rule.drop_response("Produce", every=5, cut_after_ms=0),)
    report = tally.report(7, rules)
    tally.of(Direction.REQUEST, 0).forwarded += 1
    assert report.requests == {"Produce": Counts(forwarded=5)}
    assert report.responses == {"Produce": Counts(dropped=1), "Api1234": Counts(forwarded=1)}
    assert report.total == Counts(forwarded=6, dropped=1)
    assert str(report).splitlines() == [
        "seed=7, 2 connections, rules: drop_response Produce cut_after_ms=0 every=5",
        "  Produce requests: 5 forwarded",
        "  Api1234 responses: 1 forwarded",
        "  Produce responses: 1 dropped",
    ]
    assert report.to_dict()["rules"] == ["drop_response Produce cut_after_ms=0 every=5"]
