"""The offset commits that the user asks for, how each of them ends, and what the group has committed.

Says what is written to the group, and tells interceptors and callbacks; `OffsetCommits` of the core does it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oncelog.client import arguments as checked
from oncelog.client.consumer_calls.checks import check_alive, check_group
from oncelog.client.consumer_calls.limits import Limits
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.steps import Ask, AwaitNews, Call, Callback, Interceptors
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import CommitEnded, ConsumerCore, Done, Offsets, OnCommit
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_errors import CommitFailed, ConsumerTimedOut
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.membership.news import Lost
from oncelog.client.membership.offset_commits import Withdraw
from oncelog.types import TopicPartition

logger = logging.getLogger(__name__)

NS_PER_MS = 1_000_000
LOOK_AGAIN_MS = 100
"""A connection alone is no news: whoever waits for one looks so often."""

OffsetsInput = Mapping[TopicPartition, "int | OffsetAndMetadata"]

_LOST = (
    "the partitions were lost before their offsets were committed: another member may process the records since the"
    " last offset commit again. Call poll() at least every max.poll.interval.ms; the next one tells on_lost, and joins"
    " the group again"
)


class Commits:
    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        progress: Progress,
        interceptors: Interceptors,
        counters: ConsumerCounters,
        clock: Callable[[], int],
        wake: Callable[[], None],
        limits: Limits,
    ) -> None:
        self._config = config
        self._core = core
        self._progress = progress
        self._interceptors = interceptors
        self._counters = counters
        self._clock = clock
        self._wake = wake
        self._limits = limits

    # --- what the user asks for -------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsInput | None, timeout_ms: int | None) -> Call[None]:
        wanted = self._wanted(offsets)
        if not wanted and any(isinstance(one, Lost) for one in list(self._core.outbox)):
            raise self._core.absence or CommitFailed(_LOST)
        if not wanted:
            yield from self._await_broker(timeout_ms)
            return
        began_ms, covered = self._clock(), self._progress.covered_by(wanted)
        try:
            yield from self.commit_and_wait(wanted, timeout_ms)
        finally:
            self._counters.commit_sync_ns += (self._clock() - began_ms) * NS_PER_MS
        self._progress.done_covered(covered)
        self.succeeded(wanted)

    def _await_broker(self, timeout_ms: int | None) -> Call[None]:
        """There is nothing to commit, as far as anybody knows. Whoever reaches no broker does not know much, and is
        not to take that for a success."""
        timeout_ms = self._limits.of(timeout_ms)
        deadline_ms = self._clock() + timeout_ms
        while True:
            seen = self._core.arrivals
            check_alive(self._core)
            if self._core.is_connected:
                return
            if self._clock() >= deadline_ms:
                why = self._core.network.why_unreachable() or "none has answered yet"
                raise ConsumerTimedOut(f"no broker can be reached within {timeout_ms} ms: {why}")
            yield AwaitNews(seen, min(deadline_ms, self._clock() + LOOK_AGAIN_MS))

    def commit_async(self, offsets: OffsetsInput | None, on_commit: OnCommit | None) -> None:
        wanted = self._wanted(offsets)
        check_alive(self._core)
        covered = self._progress.covered_by(wanted)

        def settle(error: Exception | None) -> None:
            if error is None:
                self._progress.done_covered(covered)

        self.commit_and_tell(wanted, on_commit, settle, retry=False)

    def _wanted(self, offsets: OffsetsInput | None) -> Offsets:
        check_group(self._config, "committing offsets")
        if offsets is not None:
            return {partition: checked.offset(offset) for partition, offset in offsets.items()}
        return self._progress.positions()

    def committed(
        self, partitions: Iterable[TopicPartition] | None, timeout_ms: int | None
    ) -> Call[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Of all that is assigned if None."""
        check_group(self._config, "asking for committed offsets")
        wanted = sorted(self._core.assignment) if partitions is None else list(partitions)
        timeout_ms = self._limits.of(timeout_ms)
        began_ms = self._clock()
        try:
            found = yield Ask(
                lambda now_ms, done: self._core.committed(wanted, now_ms, done, timeout_ms),
                timeout_ms,
                why_silent=lambda: self._core.why_no_coordinator,
            )
        finally:
            self._counters.committed_ns += (self._clock() - began_ms) * NS_PER_MS
        return dict(found)

    def group_metadata(self) -> GroupMetadata:
        check_group(self._config, "group_metadata()")
        return self._core.identity

    # --- how it is done, and how it ends ----------------------------------------------------------------------------

    def commit_and_wait(self, offsets: Offsets, timeout_ms: int | None, *, is_wakeable: bool = True) -> Call[None]:
        """Commit these, and wait until the group has them. If the user is called away before, it is not tried again:
        what the user commits next is newer."""
        timeout_ms = self._limits.of(timeout_ms)
        withdrawals: list[Withdraw] = []

        def ask(now_ms: int, done: Done) -> None:
            timed = self._timed(done)
            withdrawals.append(self._core.commit(offsets, now_ms, timed, retry=True, timeout_ms=timeout_ms))

        def withdraw(_: int) -> None:
            for each in withdrawals:
                each()

        try:
            yield Ask(ask, timeout_ms, is_wakeable, lambda: self._core.why_no_coordinator)
        except BaseException:
            self._core.submit(withdraw)
            raise

    def commit_and_tell(
        self, offsets: Offsets, on_commit: OnCommit | None, settle: Callable[[Exception | None], None], *, retry: bool
    ) -> None:
        """Without waiting; some later call of the user's hears of it, and calls `settle` then."""

        def tell(error: Exception | None) -> None:
            self._core.tell(CommitEnded(offsets, error, on_commit, settle))

        def commit(now_ms: int) -> None:
            self._core.commit(offsets, now_ms, self._timed(tell), retry=retry)

        self._core.submit(commit)
        self._wake()

    def _timed(self, done: Done) -> Done:
        """Tells `done`, and counts the offset commit if it went well."""
        began_ms = self._clock()

        def ended(error: Exception | None) -> None:
            if error is None:
                self._counters.offsets_committed(self._clock() - began_ms)
            done(error)

        return ended

    def settle_ended(self) -> None:
        """Of the commits that have ended and that the user has not heard of: what has to be committed again."""
        for news in list(self._core.outbox):
            if isinstance(news, CommitEnded):
                news.settle(news.error)

    def tell(self, ended: CommitEnded) -> Call[None]:
        ended.settle(ended.error)
        if ended.error is None:
            self.succeeded(ended.offsets)
        elif ended.on_commit is None:
            logger.warning("offset commit of %s failed: %s", names_of(ended.offsets), ended.error)
        if ended.on_commit is not None:
            yield Callback(ended.on_commit, (ended.offsets, ended.error))

    def succeeded(self, offsets: Offsets) -> None:
        self._interceptors.on_commit(offsets)


def names_of(offsets: Mapping[TopicPartition, Any]) -> str:
    return ", ".join(map(str, sorted(offsets)))
