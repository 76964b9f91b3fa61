"""A connection that one purpose has to itself, beside the one to the same broker's own number."""

from __future__ import annotations

from oncelog.client.metadata import Node
from oncelog.client.network_events import Lost, LostKind
from tests.client.network_scene import NODES, Scene

OWN_ID = 2**31 - 1 - 1
OWN = Node(OWN_ID, "one", 9092)


def test_a_reserved_connection_is_a_second_one_to_the_same_broker() -> None:
    scene = Scene()
    usual = scene.connect(1)
    scene.network.reserve(OWN)
    own = scene.connect(OWN_ID)
    assert usual != own
    scene.send(OWN_ID, "mine")
    assert scene.network.in_flight(1) == 0
    assert scene.network.in_flight(OWN_ID) == 1


def test_new_metadata_leaves_it_alone() -> None:
    scene = Scene()
    scene.network.reserve(OWN)
    scene.connect(OWN_ID)
    scene.network.set_nodes([NODES[1]])
    assert scene.is_ready(OWN_ID)


def test_the_least_loaded_node_is_never_a_reserved_one() -> None:
    scene = Scene()
    scene.network.reserve(OWN)
    scene.connect(OWN_ID)
    assert scene.network.least_loaded(scene.now_ms) is None
    scene.perform()
    assert len(scene.dialed) == 2, "one of the nodes is tried, although the reserved connection stands"


def test_a_reserved_connection_that_is_slow_to_open_does_not_delay_others() -> None:
    scene = Scene()
    scene.network.reserve(OWN)
    assert scene.dials(OWN_ID)
    assert scene.network.least_loaded(scene.now_ms) is None
    scene.perform()
    assert len(scene.dialed) == 2


def test_a_bootstrap_connection_becomes_that_of_the_node_and_not_the_reserved_one() -> None:
    scene = Scene([Node(-1, "one", 9092)])
    scene.connect(-1)
    scene.network.reserve(OWN)
    scene.network.set_nodes(NODES)
    assert scene.is_ready(1)
    assert not scene.is_ready(OWN_ID)


def test_released_it_ends_and_tells_what_was_lost() -> None:
    scene = Scene()
    scene.network.reserve(OWN)
    link = scene.connect(OWN_ID)
    scene.send(OWN_ID, "mine")
    scene.network.release(OWN_ID)
    lost = scene.pass_time(0)
    assert [(event.tag, event.kind) for event in lost if isinstance(event, Lost)] == [("mine", LostKind.CONNECTION)]
    assert scene.closed == [link]
    scene.network.release(OWN_ID)
    assert scene.pass_time(0) == []


def test_reserved_again_at_the_same_address_it_stays_and_elsewhere_it_moves() -> None:
    scene = Scene()
    scene.network.reserve(OWN)
    link = scene.connect(OWN_ID)
    scene.network.reserve(OWN)
    assert scene.is_ready(OWN_ID)
    scene.network.reserve(Node(OWN_ID, "two", 9092))
    scene.perform()
    assert scene.closed == [link]
    assert scene.dials(OWN_ID)
    assert scene.dialed[-1].host == "two"


def test_it_is_unreachable_from_a_failure_until_the_next_attempt_may_begin() -> None:
    scene = Scene()
    assert scene.network.is_unreachable(OWN_ID, scene.now_ms)
    scene.network.reserve(OWN)
    assert not scene.network.is_unreachable(OWN_ID, scene.now_ms)
    link = scene.connect(OWN_ID)
    scene.lose(link)
    assert scene.network.is_unreachable(OWN_ID, scene.now_ms)
    scene.pass_time(60)
    assert not scene.network.is_unreachable(OWN_ID, scene.now_ms)
