"""Whom the resolver asks, and what it makes of refusals; what follows from an answer is in test_fate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client.metadata import NO_LEADER
from oncelog.client.network_events import Answered, Lost, LostKind
from oncelog.client.spool.entry import SpooledRecord
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.recovery import OpenBatch, OpenPartition
from oncelog.client.spool.resolving import ASK_AGAIN_MS, Question, Resolver
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)
NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC = 6, 29, 3
WALL_MS = 1_700_000_000_000
PRODUCER = 7


class Cluster:
    """What the resolver sees of the sender, its network and its metadata."""

    def __init__(self, leaders: dict[TopicPartition, int]) -> None:
        self.leaders = leaders
        self.ready: set[int] = set(leaders.values())
        self.asked: list[tuple[int, dict[str, Any], Question]] = []
        self.connecting: list[int] = []
        self.wanted: set[str] = set()
        self.stale = 0
        self.topic_errors: dict[str, int] = {}
        self.network = self
        self.metadata = self

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return node_id in self.ready

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.ready

    def connect(self, node_id: int, now_ms: int) -> None:
        self.connecting.append(node_id)

    def send(self, node_id: int, api_key: ApiKey, body: dict[str, Any], now_ms: int, *, tag: Question) -> None:
        assert api_key is ApiKey.DESCRIBE_PRODUCERS
        self.asked.append((node_id, body, tag))

    def want(self, topic: str, now_ms: int) -> None:
        self.wanted.add(topic)

    def mark_stale(self) -> None:
        self.stale += 1

    @property
    def topics(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for (topic, index), leader in sorted(self.leaders.items()):
            queues = found.setdefault(topic, SimpleNamespace(queues=[])).queues
            assert len(queues) == index
            queues.append(SimpleNamespace(leader=leader))
        return found


def left(partition: TopicPartition) -> OpenPartition:
    numbers = Numbered(partition, 0, 1, Identity(PRODUCER, 0), 0, WALL_MS)
    return OpenPartition(partition, (OpenBatch(numbers, (SpooledRecord(*partition, 0, WALL_MS, None, b"x"),)),), ())


def resolver_for(cluster: Cluster, *partitions: OpenPartition) -> Resolver:
    return Resolver(cluster, cluster, partitions, lambda: WALL_MS)  # type: ignore[arg-type]


def answer(question: Question, **codes: int) -> Answered:
    """Nobody knows the producer; `codes` fails partitions, named like `orders_0`."""
    topics = [
        {
            "name": partition.topic,
            "partitions": [
                {
                    "partition_index": partition.partition,
                    "error_code": codes.get(f"{partition.topic}_{partition.partition}", 0),
                    "error_message": None,
                    "active_producers": [],
                }
            ],
        }
        for partition in question.partitions
    ]
    return Answered(question, 1, ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics}, 0)


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    cluster = Cluster({A: 1, B: 2, C: 1})
    resolver = resolver_for(cluster, left(A), left(B), left(C))
    resolver.poll(0)
    resolver.poll(10)
    assert [(node, body["topics"]) for node, body, _ in cluster.asked] == [
        (1, [{"name": "orders", "partition_indexes": [0]}, {"name": "payments", "partition_indexes": [0]}]),
        (2, [{"name": "orders", "partition_indexes": [1]}]),
    ]
    assert cluster.wanted == {"orders", "payments"}
    for _, _, question in cluster.asked:
        assert not resolver.is_done
        resolver.handle(answer(question), 20)
    assert resolver.is_done
    assert all(len(judgement.again) == 1 for judgement in resolver.judgements.values())


def test_a_partition_without_a_known_leader_waits_for_one() -> None:
    cluster = Cluster({A: NO_LEADER})
    resolver = resolver_for(cluster, left(A), left(C))
    assert resolver.poll(0) == ASK_AGAIN_MS
    assert cluster.asked == []
    cluster.leaders = {A: 1, C: 2}
    cluster.ready = {2}
    resolver.poll(200)
    assert [node for node, _, _ in cluster.asked] == [2]
    assert cluster.connecting == [1]


@pytest.mark.parametrize("code", [NOT_LEADER, UNKNOWN_TOPIC])
def test_what_may_pass_is_asked_again(code: int) -> None:
    cluster = Cluster({A: 1, B: 1})
    resolver = resolver_for(cluster, left(A), left(B))
    resolver.poll(0)
    resolver.handle(answer(cluster.asked[0][2], orders_1=code), 0)
    assert set(resolver.judgements) == {A}
    assert cluster.stale == 1, "somebody else may lead it now"
    resolver.poll(ASK_AGAIN_MS - 1)
    assert len(cluster.asked) == 1
    cluster.leaders[B] = 2
    cluster.ready = {2}
    resolver.poll(ASK_AGAIN_MS)
    assert cluster.asked[1][0] == 2
    assert cluster.asked[1][2].partitions == (B,)


@pytest.mark.parametrize("kind", [LostKind.CONNECTION, LostKind.TIMEOUT, LostKind.RUBBISH])
def test_a_lost_question_is_asked_again(kind: LostKind) -> None:
    cluster = Cluster({A: 1})
    resolver = resolver_for(cluster, left(A))
    resolver.poll(0)
    resolver.handle(Lost(cluster.asked[0][2], 1, "gone", kind), 0)
    assert not resolver.judgements
    resolver.poll(ASK_AGAIN_MS)
    assert len(cluster.asked) == 2


def test_a_leader_that_may_not_tell_leaves_the_fate_unknown() -> None:
    cluster = Cluster({A: 1})
    resolver = resolver_for(cluster, left(A))
    resolver.poll(0)
    resolver.handle(answer(cluster.asked[0][2], orders_0=TOPIC_AUTHORIZATION_FAILED), 0)
    (unknown,) = resolver.judgements[A].unknown
    assert "does not tell what it stored" in unknown.reason
    assert "uthoriz" in unknown.reason


def test_a_leader_that_does_not_know_the_question_leaves_the_fate_unknown() -> None:
    cluster = Cluster({A: 1})
    resolver = resolver_for(cluster, left(A))
    resolver.poll(0)
    resolver.handle(Lost(cluster.asked[0][2], 1, "no DescribeProducers before 2.8", LostKind.UNSUPPORTED), 0)
    assert "before 2.8" in resolver.judgements[A].unknown[0].reason


def test_a_topic_that_may_not_be_seen_leaves_the_fate_unknown() -> None:
    cluster = Cluster({})
    cluster.topic_errors["orders"] = TOPIC_AUTHORIZATION_FAILED
    resolver = resolver_for(cluster, left(A))
    resolver.poll(0)
    assert resolver.is_done
    assert resolver.judgements[A].unknown


def test_what_only_the_journal_could_tell_needs_no_question() -> None:
    cluster = Cluster({A: 1})
    resolver = resolver_for(cluster, OpenPartition(A, (), ((3, 9),)))
    assert resolver.is_done
    assert [(one.first, one.end) for one in resolver.judgements[A].unknown] == [(3, 9)]
