"""`ConsumerCalls`: what is done with, what is committed, what callbacks see. No thread, no socket, a played clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client.consumer_calls import Ask, AwaitNews, Call, Callback, ConsumerCalls, Interceptors, Listener
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import CommitEnded, Trouble
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_errors import CommitFailed, ConsumerClosed, SubscriptionConflict
from oncelog.client.consumer_reader import Reader
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.membership.news import Assigned, Failed, Lost, Revoking
from oncelog.errors import CorruptMessage, GroupAuthorizationFailed, InvalidConfig, RebalanceInProgress
from oncelog.types import TopicPartition
from tests.support.batches import make_batch

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


class PlayedCore:
    """Runs commands at once, and remembers what is committed."""

    def __init__(self) -> None:
        self.outbox: deque[Any] = deque()
        self.arrivals = 0
        self.polls = 0
        self.in_hand: Any = None
        self.fatal: Exception | None = None
        self.has_lost_place = False
        self.absence: CommitFailed | None = None
        self.identity = GroupMetadata("billing", 1, "me")
        self.membership = SimpleNamespace(ask_rebalance=lambda reason: None)
        self.committed: list[dict[TopicPartition, int]] = []
        self.commit_error: Exception | None = None
        self.heard_of: list[Any] = []
        self.fetched_again: list[TopicPartition] = []
        self.fetcher = SimpleNamespace(
            states={},
            seek=self._seek,
            reset=lambda partition, spec: None,
            fetch_again=lambda partition, seek_count: self.fetched_again.append(partition),
        )
        self.leaving: list[Any] = []

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.fetcher.states)

    def own(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.fetcher.states[partition] = PartitionState(partition, 0)

    def _seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        self.fetcher.states[partition].jump(offset, epoch)

    def submit(self, command: Callable[[int], Any]) -> None:
        command(0)

    def commit(self, offsets: Any, now_ms: int, done: Any, **how: Any) -> None:
        if self.commit_error is None:
            self.committed.append({partition: each.offset for partition, each in offsets.items()})
        done(self.commit_error)

    def tell(self, *news: Any) -> None:
        self.outbox.extend(news)

    def heard(self, news: Any, now_ms: int) -> None:
        self.heard_of.append(news)
        if isinstance(news, Revoking):
            for partition in news.partitions:
                self.fetcher.states.pop(partition).jump(None)

    def subscribe(self, topics: Any, now_ms: int) -> None: ...

    def assign(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        self.own(*partitions)

    def unsubscribe(self, now_ms: int) -> None:
        self.outbox.extend(self.leaving)
        if not self.leaving:
            self.fetcher.states.clear()

    def close(self, deadline_ms: int) -> None:
        self.fatal = ConsumerClosed("closed")


class Hiding(Interceptors):
    def __init__(self) -> None:
        self.commits: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.commits.append(offsets)


class Scene:
    def __init__(self, interceptors: Interceptors | None = None, **settings: Any) -> None:
        self.config = ConsumerConfig.of("127.0.0.1:9092", **{"group_id": "billing", **settings})
        self.now_ms = 0
        self.core = PlayedCore()
        self.inbox = Inbox(1 << 20, lambda: None)
        counters = ConsumerCounters()
        self.reader = Reader(self.inbox, self.config, lambda topic: None, lambda topic: None, counters)
        self.waits: list[AwaitNews] = []
        self.while_waiting: list[Callable[[], Any]] = []
        self.owner = object()
        self.calls = ConsumerCalls(
            self.config,
            self.core,  # type: ignore[arg-type]
            self.reader,
            interceptors or Interceptors(),
            counters,
            lambda now_ms: None,
            lambda: self.now_ms,
            lambda: None,
            self.owner,
        )

    def run(self, call: Call[Any]) -> Any:
        result: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = call.send(result) if error is None else call.throw(error)
            except StopIteration as end:
                return end.value
            result = error = None
            try:
                result = self._perform(step)
            except BaseException as raised:
                error = raised

    def _perform(self, step: Ask | AwaitNews | Callback) -> Any:
        if isinstance(step, Callback):
            return step.function(*step.arguments)
        if isinstance(step, Ask):
            answers: list[Any] = []
            step.command(self.now_ms, answers.append)
            if isinstance(answers[0], Exception):
                raise answers[0]
            return answers[0]
        self.waits.append(step)
        if self.while_waiting:
            self.while_waiting.pop(0)()
        else:
            assert step.deadline_ms is not None
            self.now_ms = step.deadline_ms
        return None

    def arrive(self, partition: TopicPartition, first: int, count: int, **batch: Any) -> None:
        data = make_batch([b"v"] * count, base_offset=first, leader_epoch=2, **batch)
        state = self.core.fetcher.states[partition]
        self.inbox.put([FetchedData(state, state.seek_count, first, memoryview(data), [], Frame(len(data), 1))])

    def subscribed(self, *partitions: TopicPartition, **listener: Any) -> Scene:
        self.run(self.calls.subscribe(["orders"], Listener(**listener)))
        self.core.own(*partitions)
        return self

    def poll(self, timeout_ms: int = 0, limit: int | None = None) -> list[int]:
        return [record.offset for record in self.run(self.calls.poll(timeout_ms, limit))]


def test_spoiled_data_is_told_and_fetched_again() -> None:
    scene = Scene().subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 5)
    scene.arrive(TWO, 0, 5, crc=1)
    assert scene.poll() == [0, 1, 2, 3, 4]
    assert scene.core.fetched_again == [], "nobody has heard of it yet"
    with pytest.raises(CorruptMessage):
        scene.poll()
    assert scene.core.fetched_again == [TWO]


# --- what is done with ----------------------------------------------------------------------------------------------


def test_automatic_commits_cover_earlier_polls_only() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    scene.poll(limit=10)
    scene.now_ms = 100
    scene.poll(limit=10)
    assert scene.core.committed == [{ONE: 10}], "the second ten are in hand"
    scene.poll(limit=10)
    assert len(scene.core.committed) == 1, "the interval is not over"
    scene.run(scene.calls.close(0, is_failing=False))
    assert scene.core.committed[1:] == [{ONE: 30}]


def test_a_poll_that_waits_commits_when_it_is_due() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 10}]
    assert scene.waits[0].deadline_ms == 100


def test_an_error_ends_the_block_and_what_is_in_hand_is_not_committed() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    scene.poll(limit=10)
    scene.poll(limit=10)
    scene.run(scene.calls.close(0, is_failing=True))
    assert scene.core.committed == [{ONE: 10}]


def test_in_an_iteration_everything_before_the_record_in_hand_is_done() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    chunk = scene.run(scene.calls.next_chunk())
    scene.core.in_hand = chunk[4]
    scene.run(scene.calls.commit(None, None))
    assert scene.core.committed == [{ONE: 5}], "up to and with the one in hand"
    scene.run(scene.calls.close(0, is_failing=True))
    assert scene.core.committed[1:] == [{ONE: 4}]


def test_a_broken_iteration_gives_back_what_it_did_not_hand_out() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.core.in_hand = scene.run(scene.calls.next_chunk())[4]
    assert scene.poll() == [5, 6, 7, 8, 9]


def test_a_seek_replaces_what_was_done() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll()
    scene.run(scene.calls.seek(ONE, 3))
    scene.run(scene.calls.close(0, is_failing=False))
    assert scene.core.committed == [{ONE: 3}]


# --- news -----------------------------------------------------------------------------------------------------------


def test_callbacks_get_the_consumer_and_the_partitions_in_order() -> None:
    told: list[Any] = []
    scene = Scene()
    scene.subscribed(
        on_assigned=lambda *arguments: told.append(("assigned", *arguments)),
        on_revoked=lambda *arguments: told.append(("revoked", *arguments)),
    )
    scene.core.own(ONE, TWO)
    news = [Assigned(frozenset([ONE, TWO]), frozenset([TWO, ONE])), Revoking(frozenset([ONE])), Lost(frozenset([TWO]))]
    scene.core.tell(*news)
    scene.poll()
    assert told == [
        ("assigned", scene.owner, [ONE, TWO]),
        ("revoked", scene.owner, [ONE]),
        ("revoked", scene.owner, [TWO]),
    ], "without on_lost, on_revoked hears of losses"
    assert scene.core.heard_of == news


def test_nobody_is_told_of_nothing() -> None:
    told: list[Any] = []
    scene = Scene().subscribed(on_assigned=lambda *arguments: told.append(arguments))
    scene.core.tell(Assigned(frozenset(), frozenset()))
    scene.poll()
    assert told == []
    assert len(scene.core.heard_of) == 1, "but the member goes on"


def test_what_is_done_is_committed_before_it_is_given_up() -> None:
    order: list[Any] = []
    scene = Scene()
    scene.subscribed(ONE, on_revoked=lambda *_: order.append(list(scene.core.committed)))
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.tell(Revoking(frozenset([ONE])))
    assert scene.poll() == []
    assert order == [[{ONE: 10}]]


def test_a_revocation_of_what_is_lost_already_is_a_loss() -> None:
    told: list[str] = []
    scene = Scene()
    scene.subscribed(ONE, on_revoked=lambda *_: told.append("revoked"), on_lost=lambda *_: told.append("lost"))
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.has_lost_place = True
    scene.core.tell(Revoking(frozenset([ONE])))
    scene.poll()
    assert told == ["lost"]
    assert scene.core.committed == []


def test_a_callback_that_raises_does_not_hold_up_the_group() -> None:
    scene = Scene().subscribed(ONE, on_revoked=lambda *_: 1 // 0)
    scene.core.tell(Revoking(frozenset([ONE])))
    with pytest.raises(ZeroDivisionError):
        scene.poll()
    assert len(scene.core.heard_of) == 1
    assert scene.poll() == []


def test_in_a_callback_nobody_waits_for_the_group() -> None:
    scene = Scene()

    def on_assigned(*_: object) -> None:
        for call in (scene.calls.poll(0, None), scene.calls.unsubscribe()):
            with pytest.raises(RuntimeError, match="would wait for itself"):
                scene.run(call)

    scene.subscribed(ONE, on_assigned=on_assigned)
    scene.core.tell(Assigned(frozenset([ONE]), frozenset([ONE])))
    scene.poll()
    assert len(scene.core.heard_of) == 1


def test_trouble_is_raised_once_and_before_records() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 3)
    scene.core.tell(Trouble(GroupAuthorizationFailed("no")))
    with pytest.raises(GroupAuthorizationFailed):
        scene.poll()
    assert scene.poll() == [0, 1, 2]


# --- commits --------------------------------------------------------------------------------------------------------


def test_a_commit_after_a_loss_fails_even_if_nothing_is_owned() -> None:
    scene = Scene(enable_auto_commit=False).subscribed()
    scene.run(scene.calls.commit(None, None))
    scene.core.tell(Lost(frozenset([ONE])))
    with pytest.raises(CommitFailed, match="the next one tells on_lost"):
        scene.run(scene.calls.commit(None, None))


def test_asynchronous_commits_are_told_in_a_later_poll() -> None:
    told: list[Any] = []
    scene = Scene(enable_auto_commit=False).subscribed(ONE)
    scene.calls.commit_async({ONE: 5}, lambda *ended: told.append(ended))
    assert told == []
    scene.poll()
    assert told == [({ONE: OffsetAndMetadata(5)}, None)]


def test_interceptors_hear_of_commits_that_went_well() -> None:
    interceptor = Hiding()
    scene = Scene(interceptor, auto_commit_interval_ms=0).subscribed(ONE)
    scene.run(scene.calls.commit({ONE: 1}, None))
    scene.calls.commit_async({ONE: 2}, None)
    scene.core.commit_error = RebalanceInProgress("no")
    scene.calls.commit_async({ONE: 3}, None)
    scene.poll()
    scene.core.commit_error = None
    scene.arrive(ONE, 0, 10)
    for _ in range(3):
        scene.poll()
    assert [each[ONE].offset for each in interceptor.commits] == [1, 2, 10]


def test_a_failed_automatic_commit_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(auto_commit_interval_ms=0).subscribed(ONE)
    scene.core.commit_error = CommitFailed("late")
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll()
    scene.poll()
    assert "offset commit of orders-0 failed: late" in caplog.text


# --- waiting --------------------------------------------------------------------------------------------------------


def test_whoever_waits_says_often_enough_that_it_is_alive() -> None:
    scene = Scene(enable_auto_commit=False, max_poll_interval_ms=3_000).subscribed(ONE)
    before = scene.core.polls
    scene.poll(10_000)
    assert [wait.deadline_ms for wait in scene.waits] == list(range(1_000, 10_001, 1_000))
    assert scene.core.polls - before == 11


def test_what_arrives_while_waiting_is_returned() -> None:
    scene = Scene().subscribed(ONE)
    scene.while_waiting.append(lambda: scene.arrive(ONE, 0, 2))
    assert scene.poll(10_000) == [0, 1]
    assert scene.now_ms == 0


def test_what_interceptors_hide_is_passed_over_at_once() -> None:
    class OnlyTwo(Interceptors):
        def on_consume(self, records: list[Any]) -> list[Any]:
            return [record for record in records if record.partition == 1]

    scene = Scene(OnlyTwo(), max_poll_records=5).subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 20)
    scene.arrive(TWO, 0, 1)
    assert scene.poll() == [0]
    assert scene.waits == []


# --- the end --------------------------------------------------------------------------------------------------------


def test_the_end_tells_what_goes_and_who_committed_without_waiting() -> None:
    told: list[Any] = []
    scene = Scene(enable_auto_commit=False)
    scene.subscribed(ONE, on_revoked=lambda _, partitions: told.append(partitions))
    scene.calls.commit_async({ONE: 5}, lambda offsets, error: told.append(error))
    scene.core.tell(Failed(GroupAuthorizationFailed("of no use any more")), Trouble(ValueError("neither")))
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert told == [None, [ONE]]
    assert scene.core.fatal is not None


def test_the_end_waits_for_answers_that_are_under_way() -> None:
    told: list[Any] = []
    scene = Scene().subscribed(ONE)

    def close(deadline_ms: int) -> None:
        def ended() -> None:
            scene.core.tell(CommitEnded({ONE: OffsetAndMetadata(1)}, None, lambda *ended: told.append(ended)))
            scene.core.fatal = ConsumerClosed("closed")

        scene.while_waiting.append(ended)

    scene.core.close = close  # type: ignore[method-assign]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert len(told) == 1
    assert not scene.waits[0].is_wakeable


def test_a_callback_that_raises_at_the_end_is_heard_after_all_is_done() -> None:
    scene = Scene().subscribed(ONE, on_revoked=lambda *_: 1 // 0)
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    with pytest.raises(ZeroDivisionError):
        scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.fatal is not None


def test_what_does_not_go_together() -> None:
    scene = Scene()
    with pytest.raises(SubscriptionConflict, match="nothing to read"):
        scene.poll()
    scene.run(scene.calls.assign([ONE]))
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        scene.run(scene.calls.subscribe(["orders"], Listener()))
    scene.run(scene.calls.unsubscribe())
    scene.subscribed()
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        scene.run(scene.calls.assign([ONE]))
    with pytest.raises(InvalidConfig, match=r"set group.id"):
        Scene(group_id=None).subscribed()
