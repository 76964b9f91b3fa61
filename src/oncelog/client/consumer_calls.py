"""What each call of a consumer does, written once for threads and for asyncio.

A call is a generator. It yields what it cannot do itself (`Ask` the core and wait, `AwaitNews`, run a `Callback` of the
user's) and gets the result sent in; a shell runs it, by blocking or by awaiting. Everything here belongs to the user's
side: which records are in the user's hands, which are done with, what to commit.

When is a record done with? When the user asks for more. `poll()` is done with all that earlier polls returned,
iteration with every record before the one in hand; `close()` with everything, unless an error ended the `with` block.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import (
    CommitEnded,
    ConsumerCore,
    Done,
    Offsets,
    OnCommit,
    Subscription,
    Trouble,
    UserNews,
)
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_errors import CommitFailed, ConsumerTimedOut, NotAssigned, SubscriptionConflict
from oncelog.client.consumer_reader import Reader
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from oncelog.client.fetch.lookups import Survey
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET
from oncelog.client.membership.news import Assigned, Failed, Lost, Revoking
from oncelog.client.membership.news import News as GroupNews
from oncelog.errors import CorruptMessage, InvalidConfig, OncelogError
from oncelog.records.arrow import TakenColumns
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

NS_PER_MS = 1_000_000
SIGNS_PER_INTERVAL = 3
"""How often in `max.poll.interval.ms` a call that waits shows that its user is alive."""


class Ask(NamedTuple):
    """Run the command in the core's thread, and wait until it calls `done`. What it returns can be cancelled."""

    command: Callable[[int, Done], Survey | None]
    timeout_ms: int | None = None
    """None: `default.api.timeout.ms`."""
    is_wakeable: bool = True
    """`wakeup()` ends the wait."""


class AwaitNews(NamedTuple):
    """Wait until something arrived after the first `seen` things that did."""

    seen: int
    deadline_ms: int | None
    is_wakeable: bool = True


class Callback(NamedTuple):
    """Run a function of the user's."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Step = Ask | AwaitNews | Callback
Call = Generator[Step, Any, T]

OnPartitions = Callable[[Any, list[TopicPartition]], Any]
OffsetsInput = Mapping[TopicPartition, "int | OffsetAndMetadata"]


class Listener(NamedTuple):
    """Whom to tell of the group's news. `on_lost` falls back to `on_revoked`."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


class Interceptors:
    """See `oncelog.consumer.interceptors`; by default they do nothing."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return records

    def on_commit(self, offsets: Offsets) -> None: ...


class ConsumerCalls:
    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        reader: Reader,
        interceptors: Interceptors,
        counters: ConsumerCounters,
        tick: Callable[[int], None],
        clock: Callable[[], int],
        wake: Callable[[], None],
        owner: Any,
    ) -> None:
        """`owner` is the consumer that callbacks are given; `wake` rouses the core's driver; `tick` lets windows of
        metrics begin."""
        self.is_interrupted = False
        """While iterating: the rest of the chunk is not to be handed out."""
        self._config = config
        self._core = core
        self._reader = reader
        self._interceptors = interceptors
        self._counters = counters
        self._tick = tick
        self._clock = clock
        self._wake = wake
        self._owner = owner
        self._listener = Listener()
        self._subscription: Subscription | None = None
        self._is_assigned_by_hand = False
        self._chunk: PartitionState | None = None
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        """What the user has finished with, and auto commit has not committed yet."""
        self._next_commit_ms = clock() + config.auto_commit_interval_ms
        self._is_telling = False

    # --- reading ----------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, max_records: int | None) -> Call[list[ConsumerRecord]]:
        limit = self._config.max_poll_records if max_records is None else max_records
        return (yield from self._read(self._clock() + timeout_ms, lambda: self._take(limit))) or []

    def _take(self, limit: int) -> list[ConsumerRecord]:
        while records := self._reader.take(limit):
            if shown := self._interceptors.on_consume(records):
                return shown
        return []

    def read_columns(self, timeout_ms: int, max_records: int | None) -> Call[list[TakenColumns]]:
        found = yield from self._read(self._clock() + timeout_ms, lambda: self._reader.take_columns(max_records))
        return found or []

    def next_chunk(self) -> Call[list[ConsumerRecord]]:
        """For iteration: some records of one partition, after whatever wait."""
        records = yield from self._read(None, self._take_chunk)
        assert records, "waited without end"
        return records

    def _take_chunk(self) -> list[ConsumerRecord]:
        while records := self._reader.take_chunk(self._config.max_poll_records):
            first = records[0]
            if shown := self._interceptors.on_consume(records):
                self._chunk = self._core.fetcher.states.get(TopicPartition(first.topic, first.partition))
                self.is_interrupted = False
                return shown
        return []

    def _read(self, deadline_ms: int | None, take: Callable[[], list[Any]]) -> Call[list[Any] | None]:
        self._check_readable()
        now_ms = self._clock()
        self._counters.poll_began(now_ms)
        self._tick(now_ms)
        try:
            return (yield from self._await_records(deadline_ms, take))
        finally:
            self._counters.poll_ended(self._clock())

    def _await_records(self, deadline_ms: int | None, take: Callable[[], list[Any]]) -> Call[list[Any] | None]:
        self._finish_all()
        while True:
            seen = self._core.arrivals
            self._core.polls += 1
            now_ms = self._clock()
            yield from self._attend(now_ms)
            try:
                found = take()
            except CorruptMessage:
                yield from self._fetch_again()
                raise
            if found:
                return found
            self._wake()  # the group may have waited for this poll
            if deadline_ms is not None and self._clock() >= deadline_ms:
                return None
            yield AwaitNews(seen, self._wait_until(now_ms, deadline_ms))

    def _fetch_again(self) -> Call[None]:
        """Data was spoiled, perhaps on its way only: the next read gets it anew, and the others are not held up."""
        spoiled = self._reader.open_data
        if spoiled is not None:
            partition, seek_count = spoiled.state.partition, spoiled.seek_count
            yield _simply(lambda _: self._core.fetcher.fetch_again(partition, seek_count))

    def _wait_until(self, now_ms: int, deadline_ms: int | None) -> int:
        """Whoever waits is alive, and says so often enough; and commits what is due."""
        wake_ms = now_ms + self._config.max_poll_interval_ms // SIGNS_PER_INTERVAL
        if self._config.enable_auto_commit and self._done:
            wake_ms = min(wake_ms, self._next_commit_ms)
        return wake_ms if deadline_ms is None else min(deadline_ms, wake_ms)

    def _check_readable(self) -> None:
        self.check_no_callback("poll()")
        if self._subscription is None and not self._is_assigned_by_hand:
            raise SubscriptionConflict("nothing to read: call subscribe() or assign() first")

    # --- what is in hand, and what is done --------------------------------------------------------------------------

    def _position_of(self, state: PartitionState) -> int | None:
        """After the last record that the user has seen."""
        record = self._core.in_hand
        if self._chunk is state and record is not None and not self.is_interrupted:
            return record.offset + 1
        return state.position

    def _interrupt(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """What iteration holds of these partitions, beyond the record in hand, is not handed out from here."""
        state = self._chunk
        if state is None or self.is_interrupted or (partitions is not None and state.partition not in set(partitions)):
            return
        if self._core.in_hand is not None:
            self._reader.give_back(self._core.in_hand.offset + 1)
        self.is_interrupted = True

    def _finish_all(self) -> None:
        """The user asks for more: everything handed out is done with."""
        self._interrupt()
        self.chunk_ended()
        for state in self._reader.touched:
            if state.position is not None:
                self._done[state.partition] = OffsetAndMetadata(state.position, "", state.position_epoch)
        self._reader.touched.clear()

    def chunk_ended(self) -> None:
        """Iteration handed out the whole chunk, and the user came back for more."""
        self._chunk = self._core.in_hand = None

    def _finish_before_hand(self) -> None:
        """An error ended the user's work: the record in hand is not done with, nor is what the last poll returned."""
        state, record = self._chunk, self._core.in_hand
        if state is not None and record is not None:
            self._done[state.partition] = OffsetAndMetadata(record.offset, "", state.position_epoch)
        self.chunk_ended()

    # --- the group's news -------------------------------------------------------------------------------------------

    def _attend(self, now_ms: int) -> Call[None]:
        """Everything that waits to be heard, and the offset commit that is due."""
        self._check_alive()
        while self._core.outbox:
            news = self._core.outbox.popleft()
            if isinstance(news, Trouble):
                raise news.error
            if isinstance(news, CommitEnded):
                yield from self._tell_commit(news)
            else:
                yield from self._tell_group_news(news)
        if self._config.enable_auto_commit and now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
            self._commit_done_later()

    def _check_alive(self) -> None:
        if self._core.fatal is not None:
            raise self._core.fatal.with_traceback(None)

    def _tell_group_news(self, news: GroupNews) -> Call[None]:
        """The user acts on it before the group goes on; an error of the user's does not hold up the group."""
        self._is_telling = True
        try:
            yield from self._react_to(news)
        finally:
            self._is_telling = False
            self._core.submit(lambda now_ms: self._core.heard(news, now_ms))
            self._wake()
        yield _simply(lambda _: None)  # when this has run, what was revoked is gone

    def _react_to(self, news: GroupNews) -> Call[None]:
        listener = self._listener
        if isinstance(news, Revoking) and self._core.has_lost_place:
            news = Lost(news.partitions)  # it was lost before the user came to give it up
        if isinstance(news, Revoking):
            if self._config.enable_auto_commit:
                yield from self._commit_done_now()
            yield from self._tell(listener.on_revoked, news.partitions)
            self._forget(news.partitions)
        elif isinstance(news, Lost):
            self._forget(news.partitions)
            yield from self._tell(listener.on_lost or listener.on_revoked, news.partitions)
        elif isinstance(news, Assigned):
            yield from self._tell(listener.on_assigned, news.added)
        elif isinstance(news, Failed):
            raise news.error

    def _tell(self, function: OnPartitions | None, partitions: Collection[TopicPartition]) -> Call[None]:
        if function is not None and partitions:
            yield Callback(function, (self._owner, sorted(partitions)))

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._done.pop(partition, None)

    # --- offset commits ---------------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsInput | None, timeout_ms: int | None) -> Call[None]:
        wanted = self._to_commit(offsets)
        if not wanted and any(isinstance(one, Lost) for one in list(self._core.outbox)):
            raise self._core.absence or CommitFailed(_LOST)
        if not wanted:
            return

        def ask(now_ms: int, done: Done) -> None:
            self._core.commit(wanted, now_ms, self._timed(done), retry=True, timeout_ms=timeout_ms)

        began_ms = self._clock()
        try:
            yield Ask(ask, timeout_ms)
        finally:
            self._counters.commit_sync_ns += (self._clock() - began_ms) * NS_PER_MS
        self._committed(wanted)

    def _timed(self, done: Done) -> Done:
        """Tells `done`, and counts the offset commit if it went well."""
        began_ms = self._clock()

        def ended(error: Exception | None) -> None:
            if error is None:
                self._counters.offsets_committed(self._clock() - began_ms)
            done(error)

        return ended

    def commit_async(self, offsets: OffsetsInput | None, on_commit: OnCommit | None) -> None:
        wanted = self._to_commit(offsets)
        self._check_alive()
        self._commit_and_tell(wanted, on_commit, retry=False)

    def _commit_and_tell(self, offsets: Offsets, on_commit: OnCommit | None, *, retry: bool) -> None:
        """Without waiting; some later call of the user's hears of it."""

        def tell(error: Exception | None) -> None:
            self._core.tell(CommitEnded(offsets, error, on_commit))

        self._core.submit(lambda now_ms: self._core.commit(offsets, now_ms, self._timed(tell), retry=retry))
        self._wake()

    def _to_commit(self, offsets: OffsetsInput | None) -> Offsets:
        self._check_group("committing offsets")
        if offsets is not None:
            return {partition: _offset_and_metadata(offset) for partition, offset in offsets.items()}
        return self._positions()

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for state in list(self._core.fetcher.states.values()):
            position = self._position_of(state)
            if position is not None:
                found[state.partition] = OffsetAndMetadata(position, "", state.position_epoch)
        return found

    def _commit_done_later(self) -> None:
        done = self._take_done()
        if done:
            self._commit_and_tell(done, None, retry=True)

    def _commit_done_now(self, timeout_ms: int | None = None) -> Call[None]:
        """Before partitions are given away. A failure means that some records come again, and is no reason to stop."""
        offsets = self._take_done()
        if not offsets:
            return

        def ask(now_ms: int, done: Done) -> None:
            self._core.commit(offsets, now_ms, self._timed(done), retry=True, timeout_ms=timeout_ms)

        try:
            yield Ask(ask, timeout_ms, is_wakeable=False)
            self._committed(offsets)
        except OncelogError as error:
            logger.warning("offsets of %s could not be committed, records may come again: %s", _names(offsets), error)

    def _take_done(self) -> dict[TopicPartition, OffsetAndMetadata]:
        owned = self._core.assignment
        done, self._done = self._done, {}
        return {partition: offset for partition, offset in done.items() if partition in owned}

    def _tell_commit(self, ended: CommitEnded) -> Call[None]:
        if ended.error is None:
            self._committed(ended.offsets)
        elif ended.on_commit is None:
            logger.warning("offset commit of %s failed: %s", _names(ended.offsets), ended.error)
        if ended.on_commit is not None:
            yield Callback(ended.on_commit, (ended.offsets, ended.error))

    def _committed(self, offsets: Offsets) -> None:
        self._interceptors.on_commit(offsets)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> Call[dict[TopicPartition, OffsetAndMetadata | None]]:
        self._check_group("asking for committed offsets")
        wanted = list(partitions) or sorted(self._core.assignment)
        began_ms = self._clock()
        try:
            found = yield Ask(lambda now_ms, done: self._core.committed(wanted, now_ms, done, timeout_ms), timeout_ms)
        finally:
            self._counters.committed_ns += (self._clock() - began_ms) * NS_PER_MS
        return dict(found)

    def _check_group(self, what: str) -> None:
        if self._config.group_id is None:
            raise InvalidConfig(f"{what} needs a group: set group.id")

    # --- what to read -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Subscription, listener: Listener) -> Call[None]:
        self._check_group("subscribe()")
        if self._is_assigned_by_hand:
            raise SubscriptionConflict("assign() is in force: call unsubscribe() before subscribe()")
        if not isinstance(topics, re.Pattern) and not topics:
            yield from self.unsubscribe()
            return
        self._listener = listener
        self._subscription = topics
        yield _simply(lambda now_ms: self._core.subscribe(topics, now_ms))

    def unsubscribe(self) -> Call[None]:
        """Own nothing any more; in a group, after the user has heard what is revoked."""
        self.check_no_callback("unsubscribe()")
        self._finish_all()
        if self._config.enable_auto_commit:
            yield from self._commit_done_now()
        yield from self._leave()

    def _leave(self) -> Call[None]:
        yield _simply(self._core.unsubscribe)
        problems: list[Exception] = []
        while self._core.outbox:
            yield from self._tell_leaving(self._core.outbox.popleft(), problems)
        self._subscription = None
        self._is_assigned_by_hand = False
        self._done.clear()
        if problems:
            raise problems[0]

    def _tell_leaving(self, news: UserNews, problems: list[Exception]) -> Call[None]:
        """What keeps nobody from leaving: errors of the user's callbacks come afterwards, others are of no use now."""
        try:
            if isinstance(news, GroupNews):
                yield from self._tell_group_news(news)
            elif isinstance(news, CommitEnded):
                yield from self._tell_commit(news)
        except Exception as error:
            if not isinstance(news, Failed):
                problems.append(error)

    def assign(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        if self._subscription is not None:
            raise SubscriptionConflict("subscribe() is in force: call unsubscribe() before assign()")
        self._interrupt()
        if self._config.enable_auto_commit:
            self._finish_all()
            self._commit_done_later()
        self._is_assigned_by_hand = bool(wanted)
        yield _simply(lambda now_ms: self._core.assign(wanted, now_ms))

    @property
    def subscription(self) -> Subscription | None:
        return self._subscription

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> Call[None]:
        wanted = _offset_and_metadata(offset)
        self._check_owned([partition])
        self._interrupt([partition])
        yield _simply(lambda _: self._core.fetcher.seek(partition, wanted.offset, wanted.leader_epoch))
        self._jumped([partition])

    def seek_to(self, spec: int, partitions: Iterable[TopicPartition]) -> Call[None]:
        """To the beginning, the end or a time; takes effect with the next read."""
        wanted = list(partitions) or list(self._core.assignment)
        self._check_owned(wanted)
        self._interrupt(wanted)

        def reset(_: int) -> None:
            for partition in wanted:
                self._core.fetcher.reset(partition, spec)

        yield _simply(reset)
        self._jumped(wanted)

    def _jumped(self, partitions: Iterable[TopicPartition]) -> None:
        """Where the user was before is not to be committed any more; where it goes to is."""
        self._forget(partitions)
        for partition in partitions:
            state = self._core.fetcher.states.get(partition)
            if state is not None:
                self._reader.touched.add(state)

    def pause(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        self._check_owned(wanted)
        self._interrupt(wanted)
        self._reader.close()
        yield _simply(lambda _: self._core.fetcher.pause(wanted))

    def resume(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        self._check_owned(wanted)
        yield _simply(lambda _: self._core.fetcher.resume(wanted))

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.partition for state in list(self._core.fetcher.states.values()) if state.is_paused)

    def position(self, partition: TopicPartition, timeout_ms: int | None) -> Call[int]:
        """The offset of the next record; waits until it is known."""
        self._check_owned([partition])
        timeout_ms = self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._clock() + timeout_ms
        yield _simply(lambda _: self._core.need_position(partition))
        while True:
            seen = self._core.arrivals
            self._check_alive()
            state = self._core.fetcher.states.get(partition)
            if state is None:
                raise NotAssigned([partition])
            position = self._position_of(state)
            if position is not None:
                return position
            self._raise_trouble()
            if self._clock() >= deadline_ms:
                raise ConsumerTimedOut(f"the position of {partition} is not known after {timeout_ms} ms")
            yield AwaitNews(seen, deadline_ms)

    def _raise_trouble(self) -> None:
        for news in list(self._core.outbox):
            if isinstance(news, Trouble):
                self._core.outbox.remove(news)
                raise news.error

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end, as of the last answer; None if neither is known."""
        self._check_owned([partition])
        state = self._core.fetcher.states.get(partition)
        return None if state is None else self._lag_of(state)

    def lags(self) -> dict[TopicPartition, int | None]:
        return {state.partition: self._lag_of(state) for state in list(self._core.fetcher.states.values())}

    def _lag_of(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self._config.reads_committed else state.high_watermark
        position = self._position_of(state)
        return None if end is None or position is None else max(0, end - position)

    def list_offsets(
        self, specs: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> Call[dict[TopicPartition, OffsetAndTimestamp | None]]:
        if not specs:
            return {}
        found = yield Ask(lambda _, done: self._core.list_offsets(specs, done), timeout_ms)
        return dict(found)

    def end_offsets(
        self, spec: int, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> Call[dict[TopicPartition, int]]:
        assert spec in (EARLIEST_OFFSET, LATEST_OFFSET)
        found = yield from self.list_offsets(dict.fromkeys(partitions, spec), timeout_ms)
        return {partition: one.offset for partition, one in found.items() if one is not None}

    def group_metadata(self) -> GroupMetadata:
        self._check_group("group_metadata()")
        return self._core.identity

    def enforce_rebalance(self) -> Call[None]:
        self._check_group("enforce_rebalance()")
        membership = self._core.membership
        assert membership is not None
        yield _simply(lambda _: membership.ask_rebalance("the user asked for it"))

    def _check_owned(self, partitions: Iterable[TopicPartition]) -> None:
        foreign = [partition for partition in partitions if partition not in self._core.assignment]
        if foreign:
            raise NotAssigned(foreign)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int, *, is_failing: bool) -> Call[None]:
        """Commit what is done with, tell the user what goes, leave the group; then the core ends."""
        deadline_ms = self._clock() + timeout_ms
        if is_failing:
            self._finish_before_hand()
        else:
            self._finish_all()
        if self._core.fatal is not None:
            return
        try:
            if self._config.enable_auto_commit:
                yield from self._commit_done_now(timeout_ms)
            yield from self._leave()
        finally:
            self._core.submit(lambda _: self._core.close(deadline_ms))
            self._wake()
        yield from self._await_end(deadline_ms)

    def _await_end(self, deadline_ms: int) -> Call[None]:
        """Whoever committed without waiting hears of it before the consumer is gone."""
        while True:
            seen = self._core.arrivals
            for news in list(self._core.outbox):
                if isinstance(news, CommitEnded):
                    self._core.outbox.remove(news)
                    yield from self._tell_commit(news)
            if self._core.fatal is not None or self._clock() >= deadline_ms:
                return
            yield AwaitNews(seen, deadline_ms, is_wakeable=False)

    def check_no_callback(self, what: str) -> None:
        if self._is_telling:
            raise RuntimeError(f"{what} in a rebalance callback would wait for itself: return first")


_LOST = (
    "the partitions were lost before their offsets were committed: another member may process the records since the"
    " last offset commit again. Call poll() at least every max.poll.interval.ms; the next one tells on_lost, and joins"
    " the group again"
)


def _simply(command: Callable[[int], Any]) -> Ask:
    """A command that is done when it has run."""

    def run(now_ms: int, done: Done) -> None:
        try:
            command(now_ms)
        except OncelogError as error:  # the user's mistake, not the core's
            done(error)
        else:
            done(None)

    return Ask(run, is_wakeable=False)


def _offset_and_metadata(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    wanted = OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
    if wanted.offset < 0:
        raise ValueError(f"an offset is 0 or more, not {wanted.offset}; see seek_to_beginning() and seek_to_end()")
    return wanted


def _names(offsets: Mapping[TopicPartition, Any]) -> str:
    return ", ".join(map(str, sorted(offsets)))


__all__ = ["Ask", "AwaitNews", "Call", "Callback", "ConsumerCalls", "Interceptors", "Listener"]
