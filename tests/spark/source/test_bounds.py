from __future__ import annotations

import pytest

from oncelog.spark.options import BadOption, Options
from oncelog.spark.source.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    Kind,
    NoRecordThatYoung,
    Place,
    ending,
    questions,
    settle,
    starting,
)
from oncelog.types import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def start_of(refused: Place | None = None, **raw: str) -> Bound:
    return starting(Options(raw, "the source"), LATEST, refused)


def test_where_nothing_is_said_the_default_holds() -> None:
    assert start_of().places([ONE, TWO]) == {ONE: LATEST, TWO: LATEST}
    assert start_of(startingOffsets="EARLIEST").places([ONE]) == {ONE: EARLIEST}


def test_offsets_in_json_may_be_the_first_and_the_last() -> None:
    bound = start_of(startingOffsets='{"t": {"0": -2, "1": 7}}')
    places = bound.places([ONE, TWO])
    assert places == {ONE: EARLIEST, TWO: Place(Kind.OFFSET, 7)}
    assert questions(places) == {ONE: -2}
    assert settle(bound, places, {ONE: 3}, {}) == {ONE: 3, TWO: 7}
    assert start_of(startingOffsets='{"t": {"0": -1}}').places([ONE]) == {ONE: LATEST}


@pytest.mark.parametrize("text", ['{"t": {"0": 1}}', '{"t": {"0": 1, "1": 1, "2": 1}}'])
def test_a_list_names_every_partition_and_no_other(text: str) -> None:
    with pytest.raises(BadOption, match=r"t-1|t-2"):
        start_of(startingOffsets=text).places([ONE, TWO])


@pytest.mark.parametrize("text", ['{"t": {"0": -3}}', "{}", "soon", '{"t": 3}'])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="startingOffsets"):
        start_of(startingOffsets=text)


def test_the_most_precise_option_wins() -> None:
    raw = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}
    assert start_of(**raw).places([ONE]) == {ONE: Place(Kind.MOMENT, 5)}
    assert start_of(**raw, startingTimestamp="9").places([ONE]) == {ONE: Place(Kind.MOMENT, 9)}


def test_a_moment_without_a_record_is_an_error_unless_told_otherwise() -> None:
    strict = start_of(startingTimestamp="9")
    places = strict.places([ONE])
    assert questions(places) == {ONE: 9}
    with pytest.raises(NoRecordThatYoung, match="t-0 has no record at or after 9"):
        settle(strict, places, {ONE: None}, {ONE: 4})
    lenient = start_of(startingTimestamp="9", startingOffsetsByTimestampStrategy="latest")
    assert settle(lenient, places, {ONE: None}, {ONE: 4}) == {ONE: 4}


def test_an_end_without_a_record_is_the_latest() -> None:
    bound = ending(Options({"endingTimestamp": "9"}, "the source"))
    assert settle(bound, bound.places([ONE]), {ONE: None}, {ONE: 4}) == {ONE: 4}


def test_what_would_read_nothing_is_refused() -> None:
    for text in ("latest", '{"t": {"0": -1}}'):
        with pytest.raises(BadOption, match="cannot be latest"):
            start_of(refused=LATEST, startingOffsets=text)
    for text in ("earliest", '{"t": {"0": -2}}'):
        with pytest.raises(BadOption, match="cannot be earliest"):
            ending(Options({"endingOffsets": text}, "the source"))
