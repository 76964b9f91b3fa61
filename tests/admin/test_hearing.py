"""Brokers that hear late of what their controller has answered, played by a script: who is asked, and how long."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.admin import hearing
from oncelog.client.blocking import BlockingClient, BrokersUnreachable, ConnectionLost
from oncelog.client.metadata import NO_LEADER, ClusterMetadata, Node
from oncelog.errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicOrPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

NAME = "orders"
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
GONE = "gone"
Says = Mapping[str, Any] | str


def topic(*leaders: int, error: int = 0, topic_id: uuid.UUID = NEW) -> Message:
    partitions = [
        {
            "partition_index": index,
            "leader_id": leader,
            "leader_epoch": 0,
            "replica_nodes": [leader],
            "isr_nodes": [leader],
            "offline_replicas": [],
            "error_code": 0,
        }
        for index, leader in enumerate(leaders)
    ]
    described = {"name": NAME, "topic_id": topic_id, "is_internal": False, "partitions": partitions}
    return {**described, "error_code": error}


UNKNOWN = topic(error=UnknownTopicOrPartition.code)


class Brokers:
    """Each says what its list has, one after the other, and the last for ever."""

    def __init__(self, *lines: list[Says]) -> None:
        self.lines = dict(enumerate(lines, 1))
        self.asked = dict.fromkeys(self.lines, 0)
        self.patience_ms: list[int] = []

    def refresh_metadata(self, names: list[str], *, timeout_ms: int) -> ClusterMetadata:
        assert timeout_ms == 1000 * hearing.HEARD_WITHIN_S
        return ClusterMetadata.from_message(self._answer(UNKNOWN))

    def request(self, api_key: ApiKey, body: Message, *, node: Node, timeout_ms: int) -> Message:
        assert api_key is ApiKey.METADATA
        assert body == {"topics": [{"name": NAME}], "allow_auto_topic_creation": False}
        line = self.lines[node.node_id]
        says = line[min(self.asked[node.node_id], len(line) - 1)]
        self.asked[node.node_id] += 1
        self.patience_ms.append(timeout_ms)
        if says == GONE:
            raise ConnectionLost("gone")
        return self._answer(cast("Message", says))

    def _answer(self, says: Message) -> Message:
        nodes = [{"node_id": number, "host": "here", "port": number, "rack": None} for number in self.lines]
        return {"cluster_id": "c", "controller_id": 1, "brokers": nodes, "topics": [says]}

    @property
    def client(self) -> BlockingClient:
        return cast("BlockingClient", self)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept; the clock goes on by that alone."""
    pauses: list[float] = []
    monkeypatch.setattr(hearing, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses)))
    return pauses


@pytest.mark.parametrize(
    "late",
    [UNKNOWN, topic(1), topic(1, NO_LEADER), topic(error=LeaderNotAvailable.code)],
    ids=["unknown", "not all partitions", "no leader", "not available"],
)
def test_a_topic_is_known_when_every_broker_knows_its_leaders(slept: list[float], late: Message) -> None:
    brokers = Brokers([late, late, topic(1, 2)], [topic(1, 2)], [late, topic(1, 2)])
    hearing.await_topic(brokers.client, NAME, 2)
    assert brokers.asked == {1: 3, 2: 1, 3: 2}
    assert len(slept) == 3


@pytest.mark.parametrize("says", [GONE, topic(error=TopicAuthorizationFailed.code)], ids=["gone", "may not tell"])
def test_a_broker_that_cannot_tell_is_not_waited_for(slept: list[float], says: Says) -> None:
    brokers = Brokers([says], [UNKNOWN, topic(1)])
    hearing.await_topic(brokers.client, NAME, 1)
    assert brokers.asked == {1: 1, 2: 2}
    assert len(slept) == 1


def test_nobody_is_waited_for_forever(slept: list[float]) -> None:
    brokers = Brokers([UNKNOWN], [UNKNOWN])
    hearing.await_topic(brokers.client, NAME, 1)
    assert hearing.HEARD_WITHIN_S - hearing.MAX_POLL_S <= sum(slept) <= hearing.HEARD_WITHIN_S
    assert max(slept) == hearing.MAX_POLL_S
    assert brokers.asked[2] > 0, "everyone is asked"
    assert brokers.patience_ms == sorted(brokers.patience_ms, reverse=True)
    assert brokers.patience_ms[-1] == hearing.LAST_QUESTION_MS


def test_a_name_is_known_without_leaders(slept: list[float]) -> None:
    """A broker that is down may lead some of its partitions, for as long as it likes."""
    brokers = Brokers([UNKNOWN, topic(1, NO_LEADER)], [topic(NO_LEADER)])
    hearing.await_name(brokers.client, NAME)
    assert brokers.asked == {1: 2, 2: 1}


@pytest.mark.parametrize("error", [BrokersUnreachable, ConnectionLost, LeaderNotAvailable])
def test_a_cluster_that_went_away_has_made_the_change_all_the_same(
    slept: list[float], monkeypatch: pytest.MonkeyPatch, error: Callable[[str], Exception]
) -> None:
    brokers = Brokers([UNKNOWN])

    def fail(names: list[str], *, timeout_ms: int) -> ClusterMetadata:
        raise error("away")

    monkeypatch.setattr(brokers, "refresh_metadata", fail)
    hearing.await_topic(brokers.client, NAME, 1)
    assert brokers.asked == {1: 0}


def test_a_topic_has_ended_when_no_broker_knows_it(slept: list[float]) -> None:
    old, new = topic(1, topic_id=OLD), topic(1, topic_id=NEW)
    brokers = Brokers([old, old, UNKNOWN], [new], [old, new])
    hearing.await_end_of_topic(brokers.client, NAME, OLD)
    assert brokers.asked == {1: 3, 2: 1, 3: 2}
