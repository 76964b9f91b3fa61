"""The small parts under both protocols: which topics are chosen, what the user knows, how pauses grow."""

from __future__ import annotations

import re
from uuid import UUID

from oncelog.client.membership.backoff import Backoff
from oncelog.client.membership.news import Assigned, Lost, Revoking
from oncelog.client.membership.news_box import NewsBox
from oncelog.client.membership.topic_choice import topic_choice
from oncelog.client.metadata import ClusterMetadata, TopicMetadata
from oncelog.types import TopicPartition

SOME = frozenset({TopicPartition("t", 0)})


def cluster(*names: str, internal: str = "", broken: str = "") -> ClusterMetadata:
    topics = [
        TopicMetadata(name, UUID(int=1), name == internal, (), error_code=29 if name == broken else 0)
        for name in (*names, internal, broken)
        if name
    ]
    return ClusterMetadata("c", 1, {}, {topic.name: topic for topic in topics})


def test_names_are_chosen_whether_they_exist_or_not() -> None:
    choice = topic_choice(["a", "b", "a"], exclude_internal=True)
    assert choice.topics(None) == {"a", "b"}
    assert choice.pattern is None


def test_a_pattern_chooses_topics_whose_whole_name_matches() -> None:
    choice = topic_choice(re.compile("in-.*"), exclude_internal=True)
    assert choice.topics(None) is None
    assert choice.topics(cluster("in-1", "not-in-1", "in-")) == {"in-1", "in-"}
    assert choice.topics(cluster("in-2")) == {"in-2"}, "of the cluster as it is now"
    assert choice.topics(cluster("in-1", broken="in-2")) == {"in-1"}


def test_internal_topics_are_chosen_only_if_they_are_wanted() -> None:
    there = cluster("x", internal="__consumer_offsets")
    everything = re.compile(".*")
    assert topic_choice(everything, exclude_internal=True).topics(there) == {"x"}
    assert topic_choice(everything, exclude_internal=False).topics(there) == {"x", "__consumer_offsets"}


def test_news_are_open_until_they_are_taken_and_done() -> None:
    box = NewsBox()
    assert box.is_clear
    box.put(Revoking(SOME))
    assert not box.is_clear
    assert not box.being_revoked
    assert box.take() == [Revoking(SOME)]
    assert box.being_revoked
    assert not box.is_clear
    box.put(Assigned(SOME, SOME))
    box.done()
    assert not box.is_clear, "what came meanwhile was not told yet"
    assert box.take() == [Assigned(SOME, SOME)]
    box.done()
    assert box.is_clear


def test_what_is_lost_need_not_be_given_up() -> None:
    box = NewsBox()
    box.put(Assigned(SOME, SOME))
    box.put(Revoking(SOME))
    box.withdraw_revoking()
    box.put(Lost(SOME))
    assert box.take() == [Assigned(SOME, SOME), Lost(SOME)]


def test_pauses_double_up_to_their_bound_and_begin_again_after_a_success() -> None:
    backoff = Backoff(100, 500, lambda: 0.5)
    assert [backoff.next_ms() for _ in range(4)] == [100, 200, 400, 500]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_pauses_differ_by_a_fifth() -> None:
    assert Backoff(100, 500, lambda: 0.0).next_ms() == 80
    assert Backoff(100, 500, lambda: 1.0).next_ms() == 120
