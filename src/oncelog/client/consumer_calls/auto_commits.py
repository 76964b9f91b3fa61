"""The offset commits that nobody asks for: `enable.auto.commit`.

Only what is done with is committed, every `auto.commit.interval.ms` and before partitions are given away. A failure
is no reason to stop: what was not committed is part of the next commit, for as long as the partition is ours. Does
nothing where the user commits itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from oncelog.client.consumer_calls.commits import Commits, names_of
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.steps import Call
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import Offsets
from oncelog.errors import OncelogError

logger = logging.getLogger(__name__)

REVOCATION_COMMIT_MS = 10_000
"""Enough for a coordinator that moves to another broker; what then is not committed is read again."""


class AutoCommits:
    def __init__(self, config: ConsumerConfig, progress: Progress, commits: Commits, clock: Callable[[], int]) -> None:
        self.is_enabled = config.enable_auto_commit
        self._interval_ms = config.auto_commit_interval_ms
        self._before_revocation_ms = min(config.default_api_timeout_ms, REVOCATION_COMMIT_MS)
        self._progress = progress
        self._commits = commits
        self._backoff_ms = config.retry_backoff_max_ms
        self._clock = clock
        self._next_ms = clock() + self._interval_ms

    @property
    def due_ms(self) -> int | None:
        """When to commit what is done with by now; None if there is nothing to commit."""
        return self._next_ms if self.is_enabled and self._progress.has_done else None

    def commit_if_due(self, now_ms: int) -> None:
        if self.is_enabled and now_ms >= self._next_ms:
            self._next_ms = now_ms + self._interval_ms
            self.commit_later()

    def commit_later(self) -> None:
        """Without waiting for it."""
        done = self._progress.hand_over_done() if self.is_enabled else None
        if done:
            self._commits.commit_and_tell(done, None, partial(self._ended, done), retry=True)

    def _ended(self, commit: Offsets, error: Exception | None) -> None:
        if error is None:
            self._progress.done_committed(commit)
        else:  # a group that refuses at once is not asked in a loop
            self._progress.done_not_committed(commit)
            self._next_ms = max(self._next_ms, self._clock() + self._backoff_ms)

    def commit_before_revocation(self) -> Call[None]:
        """The group waits for us meanwhile, and a `poll()` that the user wants back soon."""
        yield from self.commit_now(self._before_revocation_ms)

    def commit_before_leaving(self, timeout_ms: int | None = None) -> Call[None]:
        """What then is not committed is nobody's: the revocations that follow do not take up the time once more."""
        yield from self.commit_now(timeout_ms)
        self._progress.forget_all()

    def commit_now(self, timeout_ms: int | None = None) -> Call[None]:
        """Before partitions are given away: there may be no other commit of theirs. What has no answer yet is part of
        it, for its answer may be that it failed."""
        if not self.is_enabled:
            return
        self._commits.settle_ended()
        offsets = self._progress.hand_over_all_done()
        if not offsets:
            return
        try:
            yield from self._commits.commit_and_wait(offsets, timeout_ms, is_wakeable=False)
        except BaseException as error:
            self._progress.done_not_committed(offsets)
            if not isinstance(error, OncelogError):
                raise
            names = names_of(offsets)
            logger.warning("offsets of %s could not be committed, records may come again: %s", names, error)
        else:
            self._progress.done_committed(offsets)
            self._commits.succeeded(offsets)
