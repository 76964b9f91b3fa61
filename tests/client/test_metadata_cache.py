"""When metadata is asked for, about which topics, and what is kept of the answers."""

from __future__ import annotations

from typing import Any

from oncelog.client.metadata import NO_LEADER
from oncelog.client.metadata_cache import MetadataCache
from oncelog.wire import codec

MAX_AGE_MS, MAX_IDLE_MS, BACKOFF_MS = 10_000, 5_000, 100
UNKNOWN_TOPIC, UNAUTHORIZED = 3, 29


def cache() -> MetadataCache:
    return MetadataCache(max_age_ms=MAX_AGE_MS, max_idle_ms=MAX_IDLE_MS, retry_backoff_ms=BACKOFF_MS)


def answer(*topics: dict[str, Any]) -> codec.Message:
    message = {"brokers": [{"node_id": 1, "host": "one", "port": 9092}], "topics": list(topics)}
    return codec.decode_exactly("MetadataResponse", 12, memoryview(codec.encode("MetadataResponse", 12, message)))


def topic(name: str, leaders: tuple[int, ...] = (1,), code: int = 0) -> dict[str, Any]:
    partitions = [{"partition_index": index, "leader_id": leader} for index, leader in enumerate(leaders)]
    return {"name": name, "error_code": code, "partitions": partitions}


def names(question: codec.Message) -> list[str]:
    return [one["name"] for one in question["topics"]]


def test_is_asked_for_at_once_then_again_when_it_is_old() -> None:
    known = cache()
    assert known.due_ms() == 0
    known.question(50)
    assert known.due_ms() is None  # while the answer is awaited
    known.learn(answer(), 70)
    assert known.due_ms() == 70 + MAX_AGE_MS


def test_an_answer_tells_how_things_were_when_it_was_asked_for() -> None:
    """Whoever comes while a question is under way waits for the next one, also if that one is never answered."""
    known = cache()
    before = known.asked
    known.question(0)
    meanwhile = known.asked
    known.mark_stale()
    known.failed()
    assert known.answered == before
    known.question(BACKOFF_MS)
    late = known.asked
    known.learn(answer(), 110)
    assert before < meanwhile < known.answered == late


def test_asks_about_the_topics_in_use_and_creates_them() -> None:
    known = cache()
    known.want("a", 0)
    known.want("b", 0)
    question = known.question(0)
    assert names(question) == ["a", "b"]
    assert question["allow_auto_topic_creation"]


def test_a_new_topic_is_asked_for_at_once() -> None:
    known = cache()
    known.question(1_000)
    known.learn(answer(), 1_010)
    known.want("a", 1_020)
    assert known.due_ms() == 0


def test_a_topic_that_brokers_know_nothing_of_is_asked_for_soon_but_not_in_a_hurry() -> None:
    known = cache()
    known.want("a", 1_000)
    known.question(1_000)
    known.learn(answer(topic("a", code=UNKNOWN_TOPIC)), 1_010)
    known.want("a", 1_020)
    assert known.due_ms() == 1_000 + BACKOFF_MS
    known.want("b", 1_030)
    assert known.due_ms() == 0
    known.question(1_030)
    known.learn(answer(topic("a"), topic("b")), 1_040)
    assert known.due_ms() == 1_040 + MAX_AGE_MS


def test_a_topic_that_is_known_need_not_be_asked_for() -> None:
    known = cache()
    known.want("a", 0)
    known.question(0)
    known.learn(answer(topic("a")), 10)
    known.want("a", 20)
    assert known.due_ms() == 10 + MAX_AGE_MS


def test_a_topic_that_is_not_used_any_more_is_forgotten() -> None:
    known = cache()
    known.want("a", 0)
    known.want("b", MAX_IDLE_MS)
    assert names(known.question(MAX_IDLE_MS + 1)) == ["b"]


def test_a_lost_question_is_asked_again() -> None:
    known = cache()
    known.question(1_000)
    known.failed()
    assert known.due_ms() == 1_000 + BACKOFF_MS


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    known = cache()
    known.want("a", 0)
    known.question(0)
    known.learn(answer(topic("a", (1, NO_LEADER))), 10)
    assert known.due_ms() == BACKOFF_MS


def test_errors_of_topics_are_kept_until_they_exist() -> None:
    known = cache()
    for code, leaders in ((UNKNOWN_TOPIC, ()), (UNAUTHORIZED, ()), (0, (1,))):
        known.want("a", 0)
        known.question(0)
        known.learn(answer(topic("a", leaders, code)), 0)
        assert known.topic_errors == ({"a": code} if code else {})


def test_a_topic_that_nobody_waits_for_is_not_asked_for_until_it_exists() -> None:
    known = cache()
    known.want("a", 0)
    known.question(0)
    known.learn(answer(topic("a", (), UNKNOWN_TOPIC)), 0)
    assert names(known.question(200)) == []


def test_a_topic_whose_partitions_do_not_add_up_is_not_known() -> None:
    known = cache()
    known.want("a", 0)
    known.question(0)
    broken = topic("a", (1, 1))
    broken["partitions"][1]["partition_index"] = 7
    assert not known.learn(answer(broken), 0).topics["a"].is_usable
    known.want("a", 1)
    assert known.due_ms() == BACKOFF_MS


def test_counts_its_answers() -> None:
    known = cache()
    for count in (1, 2, 3):
        known.question(0)
        known.learn(answer(), 0)
        assert known.answers == count


def test_keeps_what_it_knew_of_other_topics() -> None:
    known = cache()
    known.want("a", 0)
    known.question(0)
    known.learn(answer(topic("a")), 0)
    known.learn(answer(topic("b")), 0)
    assert known.cluster is not None
    assert set(known.cluster.topics) == {"a", "b"}


def test_a_topic_wanted_while_a_question_is_under_way_is_asked_for_next() -> None:
    known = cache()
    known.want("orders", 0)
    known.question(0)
    known.want("payments", 10)
    known.learn(answer(topic("orders")), 20)
    due_ms = known.due_ms()
    assert due_ms == 0
    assert names(known.question(due_ms)) == ["orders", "payments"]


def test_every_topic_is_asked_for_and_none_created_for_a_pattern() -> None:
    known = cache()
    known.want("orders", 0)
    known.question(0)
    known.learn(answer(topic("orders")), 10)
    known.wants_all = True
    question = known.question(20)
    assert question["topics"] is None
    assert not question["allow_auto_topic_creation"]
    known.learn(answer(topic("payments")), 30)
    assert known.cluster is not None
    assert set(known.cluster.topics) == {"payments"}, "an answer about all topics tells which are gone"
