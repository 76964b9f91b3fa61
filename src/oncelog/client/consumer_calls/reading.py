"""The calls that hand out records. Each says that the user is alive and done with what it got before, brings what
there is to hear, and then waits for something to read.

Costs nothing for a single record: lists go from the reader to the user as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.client.consumer_calls.auto_commits import AutoCommits
from oncelog.client.consumer_calls.checks import check_alive
from oncelog.client.consumer_calls.herald import Herald
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.selection import Selection
from oncelog.client.consumer_calls.steps import AwaitNews, Call, Interceptors, simply
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_reader import Reader
from oncelog.errors import CorruptMessage
from oncelog.records.arrow import TakenColumns
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

SIGNS_PER_INTERVAL = 3
"""How often in `max.poll.interval.ms` a call that waits shows that its user is alive."""


class Reading:
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
        *,
        progress: Progress,
        auto_commits: AutoCommits,
        herald: Herald,
        selection: Selection,
    ) -> None:
        self._config = config
        self._core = core
        self._reader = reader
        self._interceptors = interceptors
        self._counters = counters
        self._tick = tick
        self._clock = clock
        self._wake = wake
        self._progress = progress
        self._auto_commits = auto_commits
        self._herald = herald
        self._selection = selection

    # --- what is handed out -----------------------------------------------------------------------------------------

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
                self._progress.chunk_began(TopicPartition(first.topic, first.partition))
                return shown
        return []

    # --- how it is waited for ---------------------------------------------------------------------------------------

    def _read(self, deadline_ms: int | None, take: Callable[[], list[Any]]) -> Call[list[Any] | None]:
        self._herald.check_no_callback("poll()")
        self._selection.check_made()
        now_ms = self._clock()
        self._counters.poll_began(now_ms)
        self._tick(now_ms)
        try:
            return (yield from self._await_records(deadline_ms, take))
        finally:
            self._counters.poll_ended(self._clock())

    def _await_records(self, deadline_ms: int | None, take: Callable[[], list[Any]]) -> Call[list[Any] | None]:
        self._progress.finish_all()
        while True:
            seen = self._core.arrivals
            self._core.polls += 1
            now_ms = self._clock()
            check_alive(self._core)
            if self._core.outbox:
                yield from self._herald.tell_all()
            self._auto_commits.commit_if_due(now_ms)
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
            yield simply(lambda _: self._core.fetcher.fetch_again(partition, seek_count))

    def _wait_until(self, now_ms: int, deadline_ms: int | None) -> int:
        """Whoever waits is alive, and says so often enough; and commits what is due."""
        ends_ms = (
            now_ms + self._config.max_poll_interval_ms // SIGNS_PER_INTERVAL,
            self._auto_commits.due_ms,
            deadline_ms,
        )
        return min(end_ms for end_ms in ends_ms if end_ms is not None)
