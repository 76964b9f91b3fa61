"""The way to the coordinator: searched, connected to on its own, forgotten, searched again."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog import errors
from oncelog.client.membership.coordinator_link import MAX_NODE_ID
from oncelog.client.network_events import Answered, Event, Lost
from oncelog.wire.api import ApiKey
from tests.client.membership.group_world import Reader, World
from tests.client.membership.model_coordinator import GROUP

HEARTBEAT = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}


class Way:
    def __init__(self, **brokers: Any) -> None:
        self.world = World({"t": 1}, **brokers)
        self.reader = Reader(self.world, "r", "classic", ("range",))
        self.world.readers.append(self.reader)
        self.link = self.reader.link
        self.ended: list[Event] = []

    def is_ready(self) -> bool:
        ready = self.link.is_ready(self.world.now_ms)
        self.reader.run()
        return ready

    def wait(self, limit_ms: int = 5_000) -> int:
        """Until it is ready; how long that took."""
        began_ms = self.world.now_ms
        while not self.is_ready():
            assert self.world.now_ms - began_ms < limit_ms, self.link.why_not_ready
            self.world.pass_time(1)
        return self.world.now_ms - began_ms

    def send(self, **options: Any) -> None:
        self.link.send(
            ApiKey.HEARTBEAT,
            dict(HEARTBEAT),
            self.world.now_ms,
            lambda event, now_ms: self.ended.append(event),
            **options,
        )
        self.reader.run()

    def searches(self) -> int:
        return len(self.world.brokers.bodies(ApiKey.FIND_COORDINATOR))


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_in_every_version(version: int) -> None:
    way = Way(versions={ApiKey.FIND_COORDINATOR: (0, version)})
    way.wait()
    assert way.searches() == 1
    assert way.link.is_known
    way.send()
    way.world.pass_time(50)
    [event] = way.ended
    assert isinstance(event, Answered)
    assert event.node_id == MAX_NODE_ID - 1


def test_it_is_live_while_somebody_is_connected_who_can_be_asked() -> None:
    way = Way()
    assert not way.link.is_live
    way.wait()
    assert way.link.is_live
    way.reader.cut()
    assert not way.link.is_live
    way.wait()
    assert way.link.is_live


def test_its_connection_is_its_own() -> None:
    way = Way()
    way.wait()
    assert len([line for line in way.world.brokers.lines if line.node_id == 1]) == 2


def test_nobody_is_asked_until_somebody_wants_it() -> None:
    way = Way()
    way.world.pass_time(500)
    assert way.searches() == 0


def test_what_waits_for_others_holds_the_link() -> None:
    way = Way()
    way.wait()
    way.send(exclusive=True)
    assert way.link.is_taken
    assert not way.is_ready()
    way.world.pass_time(50)
    assert not way.link.is_taken
    assert way.is_ready()


def test_a_lost_connection_is_searched_again_after_a_pause() -> None:
    way = Way()
    way.wait()
    way.send()
    way.reader.cut()
    assert not way.link.is_known
    [event] = way.ended
    assert isinstance(event, Lost)
    assert way.wait() >= 16
    assert way.searches() == 2


def test_a_connection_that_broke_while_nothing_was_asked_is_noticed() -> None:
    way = Way()
    way.wait()
    way.reader.cut()
    way.wait()
    assert way.searches() == 2


def test_a_coordinator_that_moved_is_found_elsewhere() -> None:
    way = Way()
    way.wait()
    way.world.brokers.move(way.world.now_ms)
    way.link.forget("NOT_COORDINATOR", way.world.now_ms)
    assert "NOT_COORDINATOR" in way.link.why_not_ready
    way.wait()
    way.send()
    way.world.pass_time(50)
    assert way.ended[-1].node_id == MAX_NODE_ID - 2


def test_pauses_grow_while_there_is_no_coordinator() -> None:
    way = Way()
    way.world.brokers.refuse(ApiKey.FIND_COORDINATOR, *([15] * 6))
    assert way.wait() > 20 + 40 + 80
    assert way.searches() == 7


def test_a_refusal_is_told_and_the_next_search_may_succeed() -> None:
    way = Way()
    way.world.brokers.refuse(ApiKey.FIND_COORDINATOR, 30)
    way.wait()
    assert way.link.refusals == 1
    assert isinstance(way.link.refusal, errors.GroupAuthorizationFailed)


def test_brokers_without_coordinators_are_a_refusal() -> None:
    way = Way(versions={ApiKey.FIND_COORDINATOR: (100, 101)})
    for _ in range(200):
        way.is_ready()
        way.world.pass_time(1)
    assert isinstance(way.link.refusal, errors.UnsupportedVersion)


def test_a_throttled_coordinator_is_left_alone() -> None:
    way = Way()
    way.wait()
    way.send()
    answered = Answered(
        tag=None,
        node_id=MAX_NODE_ID - 1,
        api_key=ApiKey.HEARTBEAT,
        version=4,
        body={"throttle_time_ms": 300},
        sent_ms=0,
    )
    way.link._obey(answered, way.world.now_ms)
    assert not way.is_ready()
    way.world.pass_time(301)
    assert way.is_ready()


def test_events_of_others_are_not_its_own() -> None:
    way = Way()
    event = Lost(tag=ApiKey.METADATA, node_id=1, reason="", kind=None)  # type: ignore[arg-type]
    assert not way.link.handle(event, way.world.now_ms)
