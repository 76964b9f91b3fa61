from __future__ import annotations

from oncelog.client.fetch.leaders import Leaders
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.metadata_cache import MetadataCache
from oncelog.types import TopicPartition
from oncelog.wire.hot import CurrentLeader, NodeEndpoint
from tests.client.network_scene import Scene

FIRST = TopicPartition("t", 0)
ENDPOINTS = [NodeEndpoint(9, "nine", 9092, None)]


def leaders(scene: Scene, state: PartitionState) -> Leaders:
    metadata = MetadataCache(max_age_ms=1_000, max_idle_ms=1_000, retry_backoff_ms=10)
    return Leaders(scene.network, metadata, {state.partition: state})


def test_a_newer_leader_is_learned_from_a_broker() -> None:
    state = PartitionState(FIRST, leader=1, leader_epoch=4)
    assert leaders(Scene(), state).hint(state, CurrentLeader(2, 5), [])
    assert (state.leader, state.leader_epoch) == (2, 5)


def test_a_broker_that_metadata_has_not_named_is_found_by_its_endpoint() -> None:
    scene = Scene()
    state = PartitionState(FIRST, leader=1, leader_epoch=4)
    assert leaders(scene, state).hint(state, CurrentLeader(9, 5), ENDPOINTS)
    assert scene.network.knows(9)
    scene.connect(9)
    assert (scene.dialed[-1].host, scene.dialed[-1].port) == ("nine", 9092)


def test_what_is_no_news_or_cannot_be_found_is_not_followed() -> None:
    state = PartitionState(FIRST, leader=1, leader_epoch=4)
    known = leaders(Scene(), state)
    for hint in (None, CurrentLeader(2, 4), CurrentLeader(2, -1), CurrentLeader(-1, 5), CurrentLeader(9, 5)):
        assert not known.hint(state, hint, [])
    assert (state.leader, state.leader_epoch) == (1, 4)


def test_metadata_of_a_node_that_was_added_decides_whether_it_stays() -> None:
    scene = Scene()
    state = PartitionState(FIRST, leader=1, leader_epoch=4)
    leaders(scene, state).hint(state, CurrentLeader(9, 5), ENDPOINTS)
    scene.network.set_nodes([])
    assert not scene.network.knows(9)
