"""Each row of the table in `fate`: what the leader says, and what follows for the batches that were left open."""

from __future__ import annotations

import pytest

from oncelog.client.spool.entry import SpooledRecord
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.fate import REMEMBERED_MS, Judgement, ListedProducer, cannot_be_asked, judge
from oncelog.client.spool.recovery import OpenBatch, OpenPartition
from oncelog.types import MAX_SEQUENCE, TopicPartition

PARTITION = TopicPartition("orders", 3)
NOW_MS = 1_700_000_000_000
US = Identity(7, 2)


def batch(
    first: int,
    count: int,
    base: int,
    *,
    numbered_ms: int = NOW_MS,
    readable: int | None = None,
    follows_gap: bool = False,
) -> OpenBatch:
    records = tuple(
        SpooledRecord(*PARTITION, first + index, NOW_MS, None, b"x")
        for index in range(count if readable is None else readable)
    )
    return OpenBatch(Numbered(PARTITION, first, count, US, base, numbered_ms), records, follows_gap)


def opened(*batches: OpenBatch) -> OpenPartition:
    return OpenPartition(PARTITION, batches, ())


def told(judgement: Judgement) -> str:
    """One letter per batch."""
    return (
        "S" * len(judgement.stored) + "L" * len(judgement.listed) + "A" * len(judgement.again)
        + "N" * len(judgement.anew) + "?" * len(judgement.unknown)
    )  # fmt: skip


THREE = opened(batch(10, 5, 20), batch(15, 5, 25), batch(20, 5, 30))
FIRST_EVER = opened(batch(0, 5, 0), batch(5, 5, 5))


@pytest.mark.parametrize(
    ("partition", "listed", "expected"),
    [
        (THREE, ListedProducer(7, 2, 40), "SSS"),  # a later one was acknowledged
        (THREE, ListedProducer(7, 2, 34), "LLL"),
        (THREE, ListedProducer(7, 2, 29), "LLA"),
        (THREE, ListedProducer(7, 2, 24), "LAA"),
        (THREE, ListedProducer(7, 2, 19), "AAA"),
        (THREE, ListedProducer(7, 2, 14), "???"),  # an earlier one is missing at the leader, and may still arrive
        (THREE, ListedProducer(7, 2, 22), "???"),  # no batch of ours ends there
        (THREE, ListedProducer(7, 2, 27), "S??"),
        (THREE, ListedProducer(7, 3, 34), "???"),  # who used our id?
        (THREE, ListedProducer(7, 2, -1), "???"),
        (THREE, None, "???"),
        (THREE, ListedProducer(8, 2, 34), "???"),
        (FIRST_EVER, None, "AA"),
        (FIRST_EVER, ListedProducer(8, 2, 34), "AA"),
        (FIRST_EVER, ListedProducer(7, 1, 999), "AA"),
        (FIRST_EVER, ListedProducer(7, 2, 4), "LA"),
        (opened(batch(0, 2, 0), batch(4, 2, 4, follows_gap=True)), None, "A?"),
        (opened(batch(0, 2, 0), batch(4, 2, 4, follows_gap=True), batch(6, 2, 6)), ListedProducer(7, 2, 1), "LNN"),
        (opened(batch(0, 2, 0), batch(4, 2, 4)), ListedProducer(7, 2, 1), "L?"),
        (opened(batch(0, 4, MAX_SEQUENCE - 1), batch(4, 4, 2)), ListedProducer(7, 2, 1), "LA"),
        (opened(batch(0, 4, MAX_SEQUENCE - 1), batch(4, 4, 2)), ListedProducer(7, 2, MAX_SEQUENCE - 2), "AA"),
        (opened(batch(0, 4, 0, readable=3)), None, "?"),
        (opened(batch(0, 4, 0, readable=3)), ListedProducer(7, 2, 3), "S"),
        (opened(batch(0, 4, 0, numbered_ms=NOW_MS - REMEMBERED_MS)), None, "A"),
        (opened(batch(0, 4, 0, numbered_ms=NOW_MS - REMEMBERED_MS - 1)), None, "?"),
        (opened(batch(0, 4, 0, numbered_ms=NOW_MS + REMEMBERED_MS + 1)), None, "?"),  # a clock cannot be right
        (opened(batch(0, 4, 0, numbered_ms=0)), ListedProducer(7, 2, 3), "L"),
        (opened(batch(0, 4, 9, numbered_ms=0)), ListedProducer(7, 2, 8), "A"),
    ],
)
def test_what_follows_from_the_leaders_word(
    partition: OpenPartition, listed: ListedProducer | None, expected: str
) -> None:
    judgement = judge(partition, [] if listed is None else [ListedProducer(1, 0, 5), listed], NOW_MS)
    assert told(judgement) == expected
    order = [*judgement.stored, *judgement.listed, *judgement.again, *judgement.anew]
    assert order == list(partition.batches[: len(order)])


def test_an_unknown_fate_is_named() -> None:
    (unknown, *_) = judge(THREE, [], NOW_MS).unknown
    assert (unknown.partition, unknown.first, unknown.end) == (PARTITION, 10, 15)
    assert "forgotten producer id 7" in unknown.reason


def test_a_leader_that_does_not_answer_leaves_all_unknown() -> None:
    judgement = cannot_be_asked(THREE, "not authorized to ask")
    assert [one.reason for one in judgement.unknown] == ["not authorized to ask"] * 3


def test_what_the_journal_lost_is_unknown_whatever_the_leader_says() -> None:
    partition = OpenPartition(PARTITION, (), ((4, 9),))
    for judgement in (judge(partition, [ListedProducer(7, 2, 3)], NOW_MS), cannot_be_asked(partition, "no")):
        assert [(one.first, one.end) for one in judgement.unknown] == [(4, 9)]
        assert "journal" in judgement.unknown[0].reason
