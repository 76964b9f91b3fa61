"""What the user has chosen to read: a subscription, or partitions assigned by hand, never both; and which of the
partitions are paused.

Owns the choice; which partitions it comes to is the core's to say (`assignment`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from oncelog.client.consumer_calls.auto_commits import AutoCommits
from oncelog.client.consumer_calls.checks import check_group, check_owned
from oncelog.client.consumer_calls.herald import Herald
from oncelog.client.consumer_calls.progress import Progress
from oncelog.client.consumer_calls.steps import Ask, Call, Listener, simply
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore, Subscription
from oncelog.client.consumer_errors import SubscriptionConflict
from oncelog.client.consumer_reader import Reader
from oncelog.client.metadata import TopicMetadata
from oncelog.errors import error_for_code
from oncelog.types import TopicPartition


class Selection:
    def __init__(
        self,
        config: ConsumerConfig,
        core: ConsumerCore,
        reader: Reader,
        progress: Progress,
        auto_commits: AutoCommits,
        herald: Herald,
    ) -> None:
        self._config = config
        self._core = core
        self._reader = reader
        self._progress = progress
        self._auto_commits = auto_commits
        self._herald = herald
        self._subscription: Subscription | None = None
        self._is_assigned_by_hand = False

    @property
    def subscription(self) -> Subscription | None:
        return self._subscription

    def check_made(self) -> None:
        if self._subscription is None and not self._is_assigned_by_hand:
            raise SubscriptionConflict("nothing to read: call subscribe() or assign() first")

    # --- what there is ----------------------------------------------------------------------------------------------

    def topics(self, timeout_ms: int | None) -> Call[set[str]]:
        """Those that exist; internal ones as `exclude.internal.topics` says."""
        found: Mapping[str, TopicMetadata]
        found = yield Ask(lambda _, done: self._core.describe_topics(None, done), timeout_ms)
        hidden = self._config.exclude_internal_topics
        return {name for name, topic in found.items() if not topic.error_code and not (hidden and topic.is_internal)}

    def partitions_for_topic(self, topic: str, timeout_ms: int | None) -> Call[set[int] | None]:
        """None for a topic that does not exist."""
        found = yield Ask(lambda _, done: self._core.describe_topics([topic], done), timeout_ms)
        known: TopicMetadata | None = found.get(topic)
        if known is not None and known.error_code:
            error = error_for_code(known.error_code, f"topic {topic!r}: {error_for_code(known.error_code).message}")
            if not error.retriable:
                raise error
        return {one.index for one in known.partitions} if known is not None and not known.error_code else None

    # --- with the group ---------------------------------------------------------------------------------------------

    def subscribe(self, topics: Subscription, listener: Listener) -> Call[None]:
        check_group(self._config, "subscribe()")
        if self._is_assigned_by_hand:
            raise SubscriptionConflict("assign() is in force: call unsubscribe() before subscribe()")
        if not isinstance(topics, re.Pattern) and not topics:
            yield from self.unsubscribe()
            return
        self._herald.listener = listener
        self._subscription = topics
        yield simply(lambda now_ms: self._core.subscribe(topics, now_ms))

    def unsubscribe(self) -> Call[None]:
        """Own nothing any more; in a group, after the user has heard what is revoked."""
        self._herald.check_no_callback("unsubscribe()")
        self._progress.finish_all()
        yield from self._auto_commits.commit_before_leaving()
        yield from self.leave()

    def leave(self) -> Call[None]:
        yield simply(self._core.unsubscribe)
        problems = yield from self._herald.tell_leaving()
        self._subscription = None
        self._is_assigned_by_hand = False
        self._progress.forget_all()
        if problems:
            raise problems[0]

    def enforce_rebalance(self) -> Call[None]:
        check_group(self._config, "enforce_rebalance()")
        membership = self._core.membership
        assert membership is not None
        yield simply(lambda _: membership.ask_rebalance("the user asked for it"))

    # --- alone ------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        if self._subscription is not None:
            raise SubscriptionConflict("subscribe() is in force: call unsubscribe() before assign()")
        self._progress.interrupt()
        if self._auto_commits.is_enabled:
            self._progress.finish_all()
            self._auto_commits.commit_later()
        self._progress.forget(self._core.assignment.difference(wanted))  # others may go on there
        self._is_assigned_by_hand = bool(wanted)
        yield simply(lambda now_ms: self._core.assign(wanted, now_ms))

    # --- for a while ------------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        check_owned(self._core, wanted)
        self._progress.interrupt(wanted)
        self._reader.close()
        yield simply(lambda _: self._core.fetcher.pause(wanted))

    def resume(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        wanted = list(partitions)
        check_owned(self._core, wanted)
        yield simply(lambda _: self._core.fetcher.resume(wanted))

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(state.partition for state in list(self._core.fetcher.states.values()) if state.is_paused)
