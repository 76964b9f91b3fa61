"""What each call of a consumer does, written once for threads and for asyncio: all of it, and the end.

Everything in here belongs to the user's side: which records are in the user's hands, which are done with, what to
commit. A call is a generator; see `steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.client.consumer_calls.auto_commits import AutoCommits
from oncelog.client.consumer_calls.commits import Commits
from oncelog.client.consumer_calls.herald import Herald
from oncelog.client.consumer_calls.limits import Limits
from oncelog.client.consumer_calls.positions import Positions
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.reading import Reading
from oncelog.client.consumer_calls.selection import Selection
from oncelog.client.consumer_calls.steps import AwaitNews, Call, Interceptors
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_reader import Reader

END_GRACE_MS = 5_000
"""How much later than it was told the core may end, and say which offset commits came to nothing."""


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
        self._core = core
        self._clock = clock
        self._wake = wake
        self.progress = Progress(core, reader)
        self.limits = Limits(config, clock)
        self.commits = Commits(config, core, self.progress, interceptors, counters, clock, wake, self.limits)
        self._auto_commits = AutoCommits(config, self.progress, self.commits, clock)
        self._herald = Herald(core, self.progress, self.commits, self._auto_commits, wake, owner)
        self.selection = Selection(config, core, reader, self.progress, self._auto_commits, self._herald)
        self.positions = Positions(config, core, self.progress, self._herald, clock, self.limits)
        self.reading = Reading(
            config,
            core,
            reader,
            interceptors,
            counters,
            tick,
            clock,
            wake,
            progress=self.progress,
            auto_commits=self._auto_commits,
            herald=self._herald,
            selection=self.selection,
        )

    def check_no_callback(self, what: str) -> None:
        self._herald.check_no_callback(what)

    def close(self, timeout_ms: int, *, is_failing: bool) -> Call[None]:
        """Commit what is done with, tell the user what goes, leave the group; then the core ends."""
        deadline_ms = self.limits.closes_by_ms = self._clock() + timeout_ms
        if is_failing:
            self.progress.finish_before_hand()
        else:
            self.progress.finish_all()
        if self._core.fatal is not None:
            return
        self._core.submit(lambda now_ms: self._core.begin_close(deadline_ms, now_ms))
        try:
            yield from self._auto_commits.commit_before_leaving(timeout_ms)
            yield from self.selection.leave()
        finally:
            self._core.submit(lambda _: self._core.close(deadline_ms))
            self._wake()
        yield from self._await_end(deadline_ms)

    def _await_end(self, deadline_ms: int) -> Call[None]:
        """Whoever committed without waiting hears of it before the consumer is gone."""
        late_ms = deadline_ms + END_GRACE_MS
        while True:
            seen, has_ended = self._core.arrivals, self._core.fatal is not None
            yield from self._herald.tell_commits()
            if has_ended or self._clock() >= late_ms:
                return
            yield AwaitNews(seen, late_ms, is_wakeable=False)
