"""What is kept of clients that fetch without a session, and what it may cost."""

from __future__ import annotations

import pytest

from oncelog.broker.fetch_session import MAX_UNKNOWN_PARTITIONS
from oncelog.broker.fetch_view import FetchContext, FetchView
from oncelog.broker.purgatory import FetchPurgatory
from oncelog.broker.request import Peer
from oncelog.broker.sessionless import SessionlessViews
from oncelog.types import TopicPartition
from oncelog.wire.fetch import FetchPartition, FetchRequest, FetchTopic


def request(*positions: tuple[int, int], topic: str = "orders") -> FetchRequest:
    partitions = [FetchPartition(index, -1, offset, -1, -1, 1000) for index, offset in positions]
    return FetchRequest(500, 1, 1000, 0, 0, -1, [FetchTopic(topic, None, partitions)])


def many(count: int, topic: str = "orders") -> FetchRequest:
    return request(*((index, 0) for index in range(count)), topic=topic)


class Scene:
    def __init__(self) -> None:
        self.purgatory = FetchPurgatory()
        self.views = SessionlessViews(self.purgatory)

    def answered(self, asked: FetchRequest, peer: Peer) -> FetchContext:
        """A fetch that found every partition at its end."""
        context = self.views.begin(asked, peer)
        for cached in context.view.to_read():
            if cached.watched is None:
                self.purgatory.watch(cached, TopicPartition(cached.topic.name, cached.requested.index))
            context.view.at_end(cached, 0, 0)
        self.views.ended(context.view)
        return context


@pytest.fixture
def scene() -> Scene:
    return Scene()


def due(view: FetchView) -> list[int]:
    return [cached.requested.index for cached in view.to_read()]


def test_only_what_is_named_otherwise_is_looked_at_again(scene: Scene) -> None:
    peer = Peer()
    scene.answered(many(5), peer)
    context = scene.views.begin(request((4, 0), (3, 7), (2, 0), (1, 0), (0, 0)), peer)
    assert due(context.view) == [3]
    assert [key.index for key in context.changed] == [3]


def test_what_changed_is_looked_at_in_the_order_of_the_request(scene: Scene) -> None:
    peer = Peer()
    scene.answered(many(5), peer)
    for index in (1, 2, 4):
        scene.purgatory.appended(TopicPartition("orders", index), 10)
    context = scene.views.begin(request((3, 0), (4, 0), (0, 0), (1, 0), (2, 0)), peer)
    assert due(context.view) == [4, 1, 2]


def test_what_is_not_named_any_more_is_forgotten(scene: Scene) -> None:
    peer = Peer()
    scene.answered(many(5), peer)
    context = scene.answered(request((0, 0), (4, 0), (7, 0)), peer)
    assert sorted(cached.requested.index for cached in context.view) == [0, 4, 7]
    assert scene.views.kept_partitions == scene.purgatory.watched_partitions == 3


def test_a_partition_that_is_named_twice_is_read_once(scene: Scene) -> None:
    context = scene.views.begin(request((0, 5), (0, 6)), Peer())
    assert [cached.requested.fetch_offset for cached in context.view] == [6]
    assert scene.views.kept_partitions == context.view.count == 1


def test_nothing_is_left_of_a_connection_that_ended(scene: Scene) -> None:
    peer = Peer()
    scene.answered(many(5), peer)
    scene.views.left(peer)
    scene.views.left(peer)
    assert (len(scene.views), scene.views.kept_partitions, scene.purgatory.watched_partitions) == (0, 0, 0)
    assert peer.view is None


def test_a_second_fetch_before_the_first_is_answered_has_a_view_of_its_own(scene: Scene) -> None:
    peer = Peer()
    first = scene.views.begin(many(3), peer)
    first.view.finish = lambda: None
    second = scene.views.begin(many(2), peer)
    assert second.view is not first.view
    assert scene.views.kept_partitions == 5
    scene.views.ended(second.view)
    assert (peer.view, scene.views.kept_partitions) == (first.view, 3)


def test_views_that_wait_for_nothing_make_room_for_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.broker.sessionless.MAX_WATCHED_PARTITIONS", 10)
    idle, busy, newcomer = Peer(), Peer(), Peer()
    scene.answered(many(4), busy)
    scene.answered(many(4), idle)
    assert busy.view is not None
    busy.view.finish = lambda: None
    assert scene.views.begin(many(5), newcomer).can_wait
    assert (idle.view, scene.views.kept_partitions) == (None, 9)
    refused = scene.views.begin(many(7, topic="more"), Peer())
    assert not refused.can_wait
    assert refused.view.count == 7, "it is served all the same"


def test_a_view_of_much_that_cannot_be_read_is_not_kept(scene: Scene) -> None:
    peer = Peer()
    context = scene.views.begin(many(MAX_UNKNOWN_PARTITIONS + 1), peer)
    scene.views.ended(context.view)  # none of them was found
    assert (peer.view, scene.views.kept_partitions) == (None, 0)
