"""The calls of a consumer over a played core: no thread, no socket, a played clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from oncelog.client.consumer_calls.calls import ConsumerCalls
from oncelog.client.consumer_calls.steps import Ask, AwaitNews, Call, Callback, Interceptors, Listener
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_errors import CommitFailed, ConsumerClosed, ConsumerTimedOut
from oncelog.client.consumer_reader import Reader
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.membership.news import Revoking
from oncelog.types import TopicPartition
from tests.support.batches import make_batch

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
ELSEWHERE = TopicPartition("refunds", 0)


class PlayedCore:
    """Runs commands at once, and remembers what is committed."""

    def __init__(self) -> None:
        self.outbox: deque[Any] = deque()
        self.arrivals = 0
        self.polls = 0
        self.in_hand: Any = None
        self.fatal: Exception | None = None
        self.has_lost_place = False
        self.is_connected = True
        self.absence: CommitFailed | None = None
        self.identity = GroupMetadata("billing", 1, "me")
        self.membership = SimpleNamespace(ask_rebalance=lambda reason: None)
        self.committed: list[dict[TopicPartition, int]] = []
        self.commit_error: Exception | None = None
        self.is_silent = False
        """Commits get no answer; who waits for one is in `unanswered`."""
        self.unanswered: list[Callable[[Exception | None], None]] = []
        self.commit_timeouts_ms: list[int | None] = []
        self.withdrawn = 0
        self.heard_of: list[Any] = []
        self.fetched_again: list[TopicPartition] = []
        self.fetcher = SimpleNamespace(
            states={},
            seek=self._seek,
            reset=lambda partition, spec: None,
            fetch_again=lambda partition, seek_count: self.fetched_again.append(partition),
            pause=lambda partitions: self._mark_paused(partitions, True),
            resume=lambda partitions: self._mark_paused(partitions, False),
        )
        self.leaving: list[Any] = []
        self.missing_partitions: dict[TopicPartition, str] = {}

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.fetcher.states)

    def own(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.fetcher.states[partition] = PartitionState(partition, 0)

    def _seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        self.fetcher.states[partition].jump(offset, epoch)

    def _mark_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        for partition in partitions:
            self.fetcher.states[partition].is_paused = is_paused

    def need_position(self, partition: TopicPartition) -> None: ...

    def why_no_position(self, state: PartitionState, now_ms: int) -> str:
        return "nobody tells"

    def begin_close(self, deadline_ms: int, now_ms: int) -> None: ...

    def submit(self, command: Callable[[int], Any]) -> None:
        command(0)

    def commit(
        self, offsets: Any, now_ms: int, done: Any, *, retry: bool, timeout_ms: int | None = None
    ) -> Callable[[], None]:
        self.commit_timeouts_ms.append(timeout_ms)
        if self.commit_error is None and not self.is_silent:
            self.committed.append({partition: each.offset for partition, each in offsets.items()})
        if self.is_silent:
            self.unanswered.append(done)
        else:
            done(self.commit_error)
        return self._withdraw

    def _withdraw(self) -> None:
        self.withdrawn += 1

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


class Scene:
    def __init__(self, interceptors: Interceptors | None = None, **settings: Any) -> None:
        self.config = ConsumerConfig.of("127.0.0.1:9092", **{"group_id": "billing", **settings})
        self.now_ms = 0
        self.core = PlayedCore()
        self.inbox = Inbox(1 << 20, lambda: None)
        self.core.fetcher.held = self.inbox.held
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
            if not answers:
                raise ConsumerTimedOut("no answer")
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
        self.run(self.calls.selection.subscribe(["orders"], Listener(**listener)))
        self.core.own(*partitions)
        return self

    def poll(self, timeout_ms: int = 0, limit: int | None = None) -> list[int]:
        return [record.offset for record in self.run(self.calls.reading.poll(timeout_ms, limit))]
