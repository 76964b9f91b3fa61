"""Proposals: each sees what the one before it has changed, and nobody sees a part of one."""

from __future__ import annotations

from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

import pytest

from oncelog.controller.changes import Change
from oncelog.controller.controller import Controller
from oncelog.controller.lane import Steps
from oncelog.controller.metadata_log import MetadataLog
from oncelog.controller.producer_ids import BLOCK_SIZE, RESERVE_AT
from oncelog.controller.records import RecordType
from oncelog.controller.state import Outcome
from oncelog.controller.topics import (
    Created,
    MorePartitions,
    NewTopic,
    TopicToDelete,
    create_partitions,
    create_topics,
    delete_topics,
)
from oncelog.errors import KafkaError, KafkaStorageError, RequestTimedOut, TopicAlreadyExists
from tests.broker.support import Threads
from tests.controller.support import CLUSTER, SCHEMA, counting_ids
from tests.controller.test_lane import Slices
from tests.controller.test_metadata_log import NOW_MS, image, open_controller

ids = counting_ids()


class Scene:
    def __init__(self, folder: Path, snapshot_bytes: int = 1 << 40) -> None:
        self.folder = folder
        self.controller: Controller = open_controller(folder, snapshot_bytes=snapshot_bytes)
        self.state = self.controller.state
        self.threads, self.slices = Threads(), Slices()
        self.controller.serve_by(self.threads.run_in_thread, self.slices.in_slices)

    def create(self, *topics: NewTopic) -> list[Any]:
        """Its list holds what `done` hears."""
        return self.propose(lambda: create_topics(self.state, CLUSTER, SCHEMA, topics, ids))

    def propose(self, plan: Callable[[], Outcome[Any]]) -> list[Any]:
        told: list[Any] = []
        self.controller.propose(plan, NOW_MS, lambda *heard: told.extend(heard))
        return told

    def finish(self) -> None:
        while self.threads.waiting or self.slices.waiting:
            if self.threads.waiting:
                self.threads.run_next()
            else:
                self.slices.step()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_plan_is_made_of_what_the_one_before_it_left(scene: Scene) -> None:
    first, second = scene.create(NewTopic("orders")), scene.create(NewTopic("orders"))
    scene.finish()
    assert not isinstance(first[0]["orders"], KafkaError)
    assert isinstance(second[0]["orders"], TopicAlreadyExists)
    assert image(open_controller(scene.folder).state) == image(scene.state)


def test_nothing_is_true_before_it_is_durable_and_nobody_is_told_before_it_is_true(scene: Scene) -> None:
    offset = scene.controller.metadata_offset
    told = scene.create(NewTopic("orders"))
    work, done = scene.threads.waiting.pop()
    written = work()
    assert not scene.state.topics
    assert scene.controller.metadata_offset == offset, "what is not in force does not count"
    assert "orders" in open_controller(scene.folder).state.topics, "it is durable"
    done(written, None, NOW_MS)
    assert not told
    scene.finish()
    assert "orders" in scene.state.topics
    assert told[1] is None
    assert scene.controller.metadata_offset > offset


def test_a_topic_comes_grows_and_goes_as_a_whole(scene: Scene) -> None:
    """At no moment does anybody see one with fewer partitions than it has, or without its configs."""
    scene.create(*[NewTopic(name, 500, configs=[("retention.ms", "5")]) for name in ("a", "b")])
    scene.propose(lambda: create_partitions(scene.state, CLUSTER, [MorePartitions("a", 900), MorePartitions("b", 900)]))
    scene.propose(lambda: delete_topics(scene.state, [TopicToDelete("a", None), TopicToDelete("b", None)]))
    seen = set()
    while scene.threads.waiting or scene.slices.waiting:
        if scene.threads.waiting:
            scene.threads.run_next()
        else:
            scene.slices.step()
        configured = {resource.name for resource, _ in scene.state.configured_resources()}
        assert configured == scene.state.topics.keys()
        seen.add(tuple(len(topic.partitions) for topic in scene.state.topics.values()))
    assert seen == {(), (500,), (500, 500), (900, 500), (900, 900), (900,)}


def test_changes_are_followed_one_by_one_and_in_force_when_they_are(scene: Scene) -> None:
    followed: list[tuple[list[RecordType], list[str], set[str]]] = []

    def follow(change: Change) -> Steps:
        types = [record.type for record in change.records]
        followed.append((types, [topic.name for topic in change.removed], set(scene.state.topics)))
        yield

    scene.controller.follow(follow, lambda _: iter(()))
    scene.create(NewTopic("a"), NewTopic("b", configs=[("retention.ms", "5")]))
    scene.propose(lambda: delete_topics(scene.state, [TopicToDelete("a", None)]))
    scene.finish()
    topic, partitions, config = RecordType.TOPIC, RecordType.PARTITION, RecordType.CONFIG
    assert followed == [
        ([topic, partitions], [], {"a"}),
        ([topic, partitions, config], [], {"a", "b"}),
        ([RecordType.REMOVE_TOPIC], ["a"], {"b"}),
    ]


@pytest.mark.parametrize("is_first_step", [True, False])
def test_what_is_durable_is_in_force_whatever_becomes_of_those_who_follow(scene: Scene, is_first_step: bool) -> None:
    followed: list[str] = []

    def follow(change: Change) -> Steps:
        for topic in change.removed:
            if not is_first_step:
                yield
            if topic.name == "a":
                raise ZeroDivisionError("a bug")
            followed.append(topic.name)
        yield

    def follow_all(types: Set[RecordType]) -> Steps:
        followed.extend(one.name for one in types)
        yield

    scene.create(NewTopic("a"), NewTopic("b"))
    scene.finish()
    scene.controller.follow(follow, follow_all)
    told = scene.propose(lambda: delete_topics(scene.state, [TopicToDelete("a", None), TopicToDelete("b", None)]))
    scene.finish()
    assert followed == ["b", "REMOVE_TOPIC"]
    assert told[1] is None, "it is so"
    assert not scene.state.topics
    assert scene.controller.metadata_offset == scene.controller._log.end_offset - 1
    assert image(open_controller(scene.folder).state) == image(scene.state)


def test_who_waits_for_ids_hears_although_another_one_fails(scene: Scene) -> None:
    def fail(_: KafkaError | None) -> None:
        raise ZeroDivisionError("a bug")

    ready: list[KafkaError | None] = []
    scene.controller.when_producer_ids(NOW_MS, fail)
    scene.controller.when_producer_ids(NOW_MS, ready.append)
    scene.finish()
    assert ready == [None]


def test_a_failure_of_long_ago_is_nobodys_answer(scene: Scene) -> None:
    scene.controller._log._log.offline = True
    scene.controller.when_producer_ids(NOW_MS, lambda _: None)
    scene.finish()
    scene.controller._log._log.offline = False
    with pytest.raises(RequestTimedOut):
        scene.controller.next_producer_id(NOW_MS)
    scene.finish()
    assert scene.controller.next_producer_id(NOW_MS) == 0


def test_what_cannot_be_written_changes_nothing_and_is_told_with_the_plan(scene: Scene) -> None:
    before = image(scene.state)
    scene.controller._log._log.offline = True
    told = scene.create(NewTopic("orders"), NewTopic("bad name"))
    scene.finish()
    response, error = told
    assert isinstance(error, KafkaStorageError)
    assert list(response) == ["orders", "bad name"]
    assert image(scene.state) == before


def test_a_plan_that_fails_writes_nothing(scene: Scene) -> None:
    def fail() -> Outcome[Created]:
        raise TopicAlreadyExists("no")

    end = scene.controller._log.end_offset
    told = scene.propose(fail)
    scene.finish()
    assert isinstance(told[1], TopicAlreadyExists)
    assert scene.controller._log.end_offset == end


def test_a_snapshot_is_written_off_the_loop_and_before_the_next_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, snapshot_bytes=1)
    written: list[set[str]] = []
    write = MetadataLog.write_snapshot

    def note(log: MetadataLog, state: Any, now_ms: int) -> None:
        written.append(set(state.topics))
        write(log, state, now_ms)

    monkeypatch.setattr(MetadataLog, "write_snapshot", note)
    scene.create(NewTopic("a"))
    told = scene.create(NewTopic("b"))
    scene.threads.run_next()
    while scene.slices.waiting:
        scene.slices.step()
    assert not written, "it waits for a thread"
    assert len(scene.threads.waiting) == 1
    scene.threads.run_next()
    assert written == [{"a"}]
    assert not told
    scene.finish()
    assert written == [{"a"}, {"a", "b"}]
    assert image(open_controller(tmp_path).state) == image(scene.state)


def test_the_next_block_of_ids_is_reserved_before_the_last_id_is_given(scene: Scene) -> None:
    ready: list[KafkaError | None] = []
    scene.controller.when_producer_ids(NOW_MS, ready.append)
    with pytest.raises(RequestTimedOut):
        scene.controller.next_producer_id(NOW_MS)
    assert not ready
    scene.finish()
    assert ready == [None]
    given = [scene.controller.next_producer_id(NOW_MS) for _ in range(BLOCK_SIZE - RESERVE_AT)]
    assert len(scene.threads.waiting) == 1, "reserved ahead"
    given += [scene.controller.next_producer_id(NOW_MS) for _ in range(10)]
    assert len(scene.threads.waiting) == 1, "once"
    scene.finish()
    given += [scene.controller.next_producer_id(NOW_MS) for _ in range(RESERVE_AT)]
    assert given == list(range(len(given)))
    assert len(given) > BLOCK_SIZE


def test_ids_that_cannot_be_reserved_are_asked_for_again(scene: Scene) -> None:
    ready: list[KafkaError | None] = []
    scene.controller._log._log.offline = True
    scene.controller.when_producer_ids(NOW_MS, ready.append)
    scene.controller.when_producer_ids(NOW_MS, ready.append)
    assert len(scene.threads.waiting) == 1
    scene.finish()
    assert [type(error) for error in ready] == [KafkaStorageError, KafkaStorageError]
    scene.controller._log._log.offline = False
    scene.controller.when_producer_ids(NOW_MS, ready.append)
    scene.finish()
    assert ready[2] is None
    assert scene.controller.next_producer_id(NOW_MS) == 0


def test_a_stop_lets_the_proposal_under_way_end_and_refuses_the_rest(scene: Scene) -> None:
    under_way, refused = scene.create(NewTopic("a")), scene.create(NewTopic("b"))
    idle: list[bool] = []
    scene.controller.stop(lambda: idle.append(True))
    assert isinstance(refused[1], RequestTimedOut)
    assert not idle
    with pytest.raises(AssertionError, match="under way"):
        scene.controller.close(NOW_MS)
    scene.finish()
    assert idle
    assert under_way[1] is None
    scene.controller.close(NOW_MS)
    assert set(open_controller(scene.folder).state.topics) == {"a"}
