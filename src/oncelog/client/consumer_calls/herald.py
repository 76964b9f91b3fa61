"""Brings what waits in the outbox to the user: the group's news to its listener, troubles as exceptions, the ends of
offset commits to whoever wanted to hear of them.

Owns whom to tell. The user acts on news of the group before the group goes on: `heard` goes back to the core when the
callback has run, also if it raised. Nobody may wait for the group from within a callback.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from oncelog.client.consumer_calls.auto_commits import AutoCommits
from oncelog.client.consumer_calls.commits import Commits
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.steps import Call, Callback, Listener, OnPartitions, simply
from oncelog.client.consumer_core import CommitEnded, ConsumerCore, Trouble, UserNews
from oncelog.client.membership.news import Assigned, Failed, Lost, Revoking
from oncelog.client.membership.news import News as GroupNews
from oncelog.types import TopicPartition


class Herald:
    def __init__(
        self,
        core: ConsumerCore,
        progress: Progress,
        commits: Commits,
        auto_commits: AutoCommits,
        wake: Callable[[], None],
        owner: Any,
    ) -> None:
        """`owner` is the consumer that callbacks are given."""
        self.listener = Listener()
        self._core = core
        self._progress = progress
        self._commits = commits
        self._auto_commits = auto_commits
        self._wake = wake
        self._owner = owner
        self._is_telling = False

    def check_no_callback(self, what: str) -> None:
        if self._is_telling:
            raise RuntimeError(f"{what} in a rebalance callback would wait for itself: return first")

    # --- what waits in the outbox -----------------------------------------------------------------------------------

    def tell_all(self) -> Call[None]:
        """Everything that waits to be heard."""
        while self._core.outbox:
            news = self._core.outbox.popleft()
            if isinstance(news, Trouble):
                raise news.error
            if isinstance(news, CommitEnded):
                yield from self._commits.tell(news)
            else:
                yield from self._tell_group_news(news)

    def tell_leaving(self) -> Call[list[Exception]]:
        """The same, from which nothing keeps the user from leaving: returns what its callbacks raised."""
        problems: list[Exception] = []
        while self._core.outbox:
            yield from self._tell_whatever(self._core.outbox.popleft(), problems)
        return problems

    def _tell_whatever(self, news: UserNews, problems: list[Exception]) -> Call[None]:
        """Errors of the user's callbacks come afterwards, others are of no use now."""
        try:
            if isinstance(news, GroupNews):
                yield from self._tell_group_news(news)
            elif isinstance(news, CommitEnded):
                yield from self._commits.tell(news)
        except Exception as error:
            if not isinstance(news, Failed):
                problems.append(error)

    def tell_commits(self) -> Call[None]:
        """Of all that waits, the ends of offset commits."""
        for news in list(self._core.outbox):
            if isinstance(news, CommitEnded):
                self._core.outbox.remove(news)
                yield from self._commits.tell(news)

    def raise_trouble(self) -> None:
        """Of all that waits, the first trouble."""
        for news in list(self._core.outbox):
            if isinstance(news, Trouble):
                self._core.outbox.remove(news)
                raise news.error

    # --- the group's news -------------------------------------------------------------------------------------------

    def _tell_group_news(self, news: GroupNews) -> Call[None]:
        """The user acts on it before the group goes on; an error of the user's does not hold up the group."""
        self._is_telling = True
        try:
            yield from self._react_to(news)
        finally:
            self._is_telling = False
            self._core.submit(lambda now_ms: self._core.heard(news, now_ms))
            self._wake()
        yield simply(lambda _: None)  # when this has run, what was revoked is gone

    def _react_to(self, news: GroupNews) -> Call[None]:
        listener = self.listener
        if isinstance(news, Revoking) and self._core.has_lost_place:
            news = Lost(news.partitions)  # it was lost before the user came to give it up
        if isinstance(news, Revoking):
            try:
                yield from self._auto_commits.commit_before_revocation()
                yield from self._tell(listener.on_revoked, news.partitions)
            finally:  # they go, whatever the callback raised
                self._progress.forget(news.partitions)
        elif isinstance(news, Lost):
            self._progress.forget(news.partitions)
            yield from self._tell(listener.on_lost or listener.on_revoked, news.partitions)
        elif isinstance(news, Assigned):
            yield from self._tell(listener.on_assigned, news.added)
        elif isinstance(news, Failed):
            raise news.error

    def _tell(self, function: OnPartitions | None, partitions: Collection[TopicPartition]) -> Call[None]:
        if function is not None and partitions:
            yield Callback(function, (self._owner, sorted(partitions)))
