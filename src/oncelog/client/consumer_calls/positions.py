"""Where the user reads, and where it could: seeks, positions, lags, and the offsets that the brokers know.

Keeps nothing: a position is the fetcher's, seen through what is in the user's hands (`Progress`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncelog.client import arguments as checked
from oncelog.client.consumer_calls.checks import check_alive, check_owned
from oncelog.client.consumer_calls.herald import Herald
from oncelog.client.consumer_calls.limits import Limits
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.steps import Ask, AwaitNews, Call, simply
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_errors import ConsumerTimedOut, NotAssigned
from oncelog.client.consumer_records import OffsetAndMetadata, OffsetAndTimestamp
from oncelog.client.fetch.inbox import FetchedData
from oncelog.client.fetch.lag import left_to_read
from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET
from oncelog.errors import UnknownTopicOrPartition
from oncelog.types import IsolationLevel, TopicPartition


class Positions:
    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        progress: Progress,
        herald: Herald,
        clock: Callable[[], int],
        limits: Limits,
    ) -> None:
        self._config = config
        self._core = core
        self._progress = progress
        self._herald = herald
        self._clock = clock
        self._limits = limits

    # --- seeks ------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> Call[None]:
        wanted = checked.offset(offset)
        check_owned(self._core, [partition])
        self._progress.interrupt([partition])
        yield simply(lambda _: self._core.fetcher.seek(partition, wanted.offset, wanted.leader_epoch))
        self._progress.jumped([partition])

    def seek_to(self, spec: int, partitions: Iterable[TopicPartition] | None) -> Call[None]:
        """To the beginning, the end or a time, of all that is assigned if None; takes effect with the next read."""
        wanted = list(self._core.assignment if partitions is None else partitions)
        check_owned(self._core, wanted)
        self._progress.interrupt(wanted)

        def reset(_: int) -> None:
            for partition in wanted:
                self._core.fetcher.reset(partition, spec)

        yield simply(reset)
        self._progress.jumped(wanted)

    # --- of what is assigned ----------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None) -> Call[int]:
        """The offset of the next record; waits until it is known."""
        check_owned(self._core, [partition])
        timeout_ms = self._limits.of(timeout_ms)
        deadline_ms = self._clock() + timeout_ms
        yield simply(lambda _: self._core.need_position(partition))
        while True:
            seen = self._core.arrivals
            check_alive(self._core)
            state = self._core.fetcher.states.get(partition)
            if state is None:
                raise NotAssigned([partition])
            position = self._progress.position_of(state)
            if position is not None:
                return position
            self._herald.raise_trouble()
            if partition in self._core.missing_partitions:
                raise UnknownTopicOrPartition(self._core.missing_partitions[partition])
            if self._clock() >= deadline_ms:
                why = self._core.why_no_position(state, self._clock())
                raise ConsumerTimedOut(f"the position of {partition} is not known after {timeout_ms} ms: {why}")
            yield AwaitNews(seen, deadline_ms)

    def lag(self, partition: TopicPartition) -> int | None:
        """What is left to read, as of the last answer; None if position or end are not known."""
        check_owned(self._core, [partition])
        state = self._core.fetcher.states.get(partition)
        return None if state is None else self._lag_of(state, self._core.fetcher.held())

    def lags(self) -> dict[TopicPartition, int | None]:
        held = self._core.fetcher.held()
        return {state.partition: self._lag_of(state, held) for state in list(self._core.fetcher.states.values())}

    def _lag_of(self, state: PartitionState, held: Mapping[PartitionState, list[FetchedData]]) -> int | None:
        reads_committed = self._config.reads_committed
        end = state.last_stable_offset if reads_committed else state.high_watermark
        position = self._progress.position_of(state)
        if end is None or position is None:
            return None
        isolation = IsolationLevel.READ_COMMITTED if reads_committed else IsolationLevel.READ_UNCOMMITTED
        return left_to_read(held.get(state, ()), position, end, isolation)

    # --- of any partitions ------------------------------------------------------------------------------------------

    def list_offsets(
        self, specs: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> Call[dict[TopicPartition, OffsetAndTimestamp | None]]:
        if not specs:
            return {}
        found = yield Ask(
            lambda _, done: self._core.list_offsets(specs, done),
            self._limits.of(timeout_ms),
            why_silent=lambda: self._core.fetcher.why_unanswered(specs),
        )
        return dict(found)

    def end_offsets(
        self, spec: int, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> Call[dict[TopicPartition, int]]:
        assert spec in (EARLIEST_OFFSET, LATEST_OFFSET)
        found = yield from self.list_offsets(dict.fromkeys(partitions, spec), timeout_ms)
        return {partition: one.offset for partition, one in found.items() if one is not None}
