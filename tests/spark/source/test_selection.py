from __future__ import annotations

import pytest

from oncelog.spark.options import BadOption, Options
from oncelog.spark.source.selection import Assign, Subscribe, SubscribePattern, selection_of
from oncelog.types import TopicPartition


def chosen(**raw: str) -> object:
    return selection_of(Options(raw, "the source"))


def test_there_are_three_ways_to_choose() -> None:
    assert chosen(subscribe="b, a") == Subscribe(("a", "b"))
    assert chosen(subscribePattern="a.*") == SubscribePattern("a.*")
    assert chosen(assign='{"a": [1]}') == Assign(frozenset({TopicPartition("a", 1)}))


@pytest.mark.parametrize("raw", [{}, {"subscribe": "a", "assign": '{"a": [1]}'}])
def test_exactly_one_is_chosen(raw: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="exactly one of the options subscribe, subscribePattern, assign"):
        chosen(**raw)


@pytest.mark.parametrize("raw", [{"subscribePattern": "a("}, {"assign": "a"}, {"subscribe": "a,,b"}])
def test_nonsense_is_refused(raw: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        chosen(**raw)


def test_a_pattern_matches_whole_names() -> None:
    assert SubscribePattern("a.?").matching(["ab", "a", "abc", "ba"]) == ("a", "ab")
