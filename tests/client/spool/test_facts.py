from __future__ import annotations

import pytest

from oncelog.client.spool.facts import (
    Doubted,
    Fact,
    Identity,
    Numbered,
    Refused,
    Settled,
    Voided,
    decode_fact,
    encode_fact,
    fates_of,
)
from oncelog.types import MAX_SEQUENCE, TopicPartition

A = TopicPartition("orders", 0)
B = TopicPartition("zahlungen-ä", 7)


US = Identity(5, 0)


def numbered(first: int, count: int, base: int, identity: Identity = US, partition: TopicPartition = A) -> Numbered:
    return Numbered(partition, first, count, identity, base, 1000)


@pytest.mark.parametrize(
    "fact",
    [
        numbered(3, 4, 2**31 - 1, Identity(2**62, 32767), B),
        Settled(A, 0, 2**40),
        Voided(B, 1, 1),
        Doubted(A, 5, 6),
        Refused(A, 1, 2),
    ],
)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    assert decode_fact(memoryview(encode_fact(fact))) == fact


def test_a_batch_is_open_until_all_of_it_is_settled() -> None:
    fates = fates_of([numbered(0, 4, 0), numbered(4, 2, 4), Settled(A, 0, 4)])
    assert fates.of(A).numbered == [numbered(4, 2, 4)]
    assert list(fates.of(A).settled) == [(0, 4)]


def test_new_numbers_replace_old_ones() -> None:
    """A batch that was too large comes back in two parts; after the first one, nothing stands for the second yet."""
    fates = fates_of([numbered(0, 4, 0), numbered(4, 4, 4), numbered(0, 2, 0)])
    assert fates.of(A).numbered == [numbered(0, 2, 0), numbered(4, 4, 4)]
    fates.apply(numbered(2, 2, 2))
    assert [batch.first for batch in fates.of(A).numbered] == [0, 2, 4]


def test_a_new_identity_says_that_no_older_batch_is_stored() -> None:
    other = Identity(5, 1)
    fates = fates_of([numbered(0, 2, 0), numbered(0, 1, 0, partition=B), numbered(0, 2, 0, other)])
    assert fates.of(A).numbered == [numbered(0, 2, 0, other)]
    assert fates.of(B).numbered == []


def test_what_follows_a_refused_batch_is_not_stored_either() -> None:
    sent = [numbered(0, 2, 0), numbered(2, 2, 2), numbered(4, 2, 4), numbered(0, 1, 0, partition=B)]
    fates = fates_of([*sent, Refused(A, 2, 2)])
    assert fates.of(A).numbered == [numbered(0, 2, 0)]
    assert list(fates.of(A).settled) == [(2, 4)]
    assert fates.of(B).numbered == [numbered(0, 1, 0, partition=B)]


def test_doubt_takes_the_place_of_numbers_until_it_is_lifted() -> None:
    fates = fates_of([numbered(0, 3, 0), Doubted(A, 0, 5)])
    assert fates.of(A).numbered == []
    fates.apply(Voided(A, 0, 2))
    fates.apply(Settled(A, 4, 1))
    assert list(fates.of(A).doubted) == [(2, 4)]
    assert fates.of(A).end == 5


def test_a_summary_leads_to_the_same_state() -> None:
    facts: list[Fact] = [
        numbered(0, 3, 0), Settled(A, 0, 3), numbered(3, 2, 3), numbered(0, 2, 0, partition=B), Settled(A, 7, 1),
        Doubted(B, 9, 3),
    ]  # fmt: skip
    fates = fates_of(facts)
    again = fates_of(fates.summary())
    for partition in (A, B):
        one, other = fates.of(partition), again.of(partition)
        assert (list(one.settled), list(one.doubted)) == (list(other.settled), list(other.doubted))
        assert one.numbered == other.numbered
        assert one.end == other.end


def test_the_last_sequence_wraps() -> None:
    assert numbered(0, 3, MAX_SEQUENCE).last_sequence == 1
