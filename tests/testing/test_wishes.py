from __future__ import annotations

from typing import Any

import pytest

from oncelog.errors import InvalidConfig
from oncelog.faults.rules import Rule
from oncelog.testing.wishes import Wishes


def marker(*positional: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return positional, named


def test_the_nearest_marker_wins_argument_by_argument() -> None:
    wishes = Wishes.of([marker(partitions=3), marker(partitions=1, seed=7), marker(configs={"retention.ms": 1})])
    assert wishes == Wishes(partitions=3, seed=7, configs={"retention.ms": 1})
    assert Wishes.of([]) == Wishes()


def test_faults_are_rules_or_their_text() -> None:
    cut = Rule.cut(every=200)
    wishes = Wishes.of([marker(faults=["drop-response Produce 0.1", cut])])
    assert wishes.rules == [Rule.drop_response("Produce", probability=0.1), cut]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (marker("drop-response Produce"), "takes named arguments only"),
        (marker(fautls=[]), "unknown argument 'fautls'; did you mean faults?"),
        (marker(zzz=1), "unknown argument 'zzz'; there are faults, seed"),
        (marker(faults="drop-response Produce"), "faults is a list of rules, not 'drop-response Produce'"),
        (marker(configs=[1]), r"configs is a dict of settings, not \[1\]"),
        (marker(partitions="3"), "partitions is a whole number, not '3'"),
        (marker(seed=True), "seed is a whole number, not True"),
    ],
)
def test_what_cannot_be_meant_is_named(wrong: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        Wishes.of([wrong])


def test_a_fault_that_there_is_not_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown fault 'drop_respons'; did you mean drop_response\?"):
        _ = Wishes(faults=["drop-respons Produce"]).rules
