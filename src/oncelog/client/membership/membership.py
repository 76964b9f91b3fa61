"""What both group protocols look like to the consumer, and the settings that they need. Interfaces and values only.

    link = CoordinatorLink(GROUP_KEY, settings.group_id, network, settings.new_backoff(random.random))
    commits = OffsetCommits(settings, link, metadata, random.random)
    member = ClassicMembership(settings, link, commits, metadata, random.random)
    member = Kip848Membership(settings, link, commits, metadata, random.random, new_id=lambda: str(uuid4()))

The consumer's core polls the member and the commits, and hands each event of the network to `link.handle`, which tells
the one who asked. A consumer that assigns partitions itself needs no member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.membership.assignor import Assignor
from oncelog.client.membership.backoff import Backoff
from oncelog.client.membership.news import News
from oncelog.types import TopicPartition

MAX_POLL_MS = 1_000
"""The longest that a part of the consumer asks to be left alone."""


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Named as Kafka's keys."""

    group_id: str
    group_instance_id: str | None = None
    client_rack: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    assignors: tuple[Assignor, ...] = ()
    """`partition.assignment.strategy`, for the classic protocol: `assignors_named` turns names into them."""
    group_remote_assignor: str | None = None
    exclude_internal_topics: bool = True
    require_stable: bool = False
    """Offsets of open transactions are waited for, as `isolation.level=read_committed` demands."""

    def new_backoff(self, jitter: Callable[[], float]) -> Backoff:
        return Backoff(self.retry_backoff_ms, self.retry_backoff_max_ms, jitter)


@dataclass(slots=True)
class MembershipCounters:
    """What Kafka's coordinator metrics are made of. Times are summed; an average divides by the count."""

    joins: int = 0
    join_ms: int = 0
    join_ms_max: int = 0
    syncs: int = 0
    sync_ms: int = 0
    sync_ms_max: int = 0
    rebalances: int = 0
    failed_rebalances: int = 0
    rebalance_ms: int = 0
    rebalance_ms_max: int = 0
    heartbeats: int = 0
    heartbeat_ms_max: int = 0
    last_heartbeat_ms: int | None = None
    """When the coordinator last answered one."""
    last_rebalance_ms: int | None = None
    """When the last rebalance ended."""

    def count_join(self, took_ms: int) -> None:
        self.joins += 1
        self.join_ms += took_ms
        self.join_ms_max = max(self.join_ms_max, took_ms)

    def count_sync(self, took_ms: int) -> None:
        self.syncs += 1
        self.sync_ms += took_ms
        self.sync_ms_max = max(self.sync_ms_max, took_ms)

    def count_rebalance(self, took_ms: int, now_ms: int) -> None:
        self.rebalances += 1
        self.rebalance_ms += took_ms
        self.rebalance_ms_max = max(self.rebalance_ms_max, took_ms)
        self.last_rebalance_ms = now_ms

    def count_heartbeat(self, took_ms: int, now_ms: int) -> None:
        self.heartbeats += 1
        self.heartbeat_ms_max = max(self.heartbeat_ms_max, took_ms)
        self.last_heartbeat_ms = now_ms


class Membership(Protocol):
    """One consumer's place in its group. Called by one thread at a time; `CoordinatorLink.handle` hands it its answers.

    News come one step at a time: after `take_news` returned something, the shell runs the callbacks and says
    `news_done`, and only then does the member do what depends on them. Heartbeats go on meanwhile.
    """

    counters: MembershipCounters

    @property
    def identity(self) -> GroupMetadata:
        """What offset commits of this moment are checked by."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours: from `Assigned` on, until its `Revoking` was done or it was `Lost`."""

    @property
    def is_joined(self) -> bool:
        """A member with an assignment (which may be empty), and no rebalance under way."""

    @property
    def wants_all_topics(self) -> bool:
        """Metadata of every topic is needed: for a pattern."""

    @property
    def is_gone(self) -> bool:
        """Nothing is left to be done after `leave`; true before the first join as well."""

    def subscribe(self, topics: Collection[str] | re.Pattern[str]) -> None:
        """Replaces the subscription; joins with the next `user_polled`, or rejoins."""

    def leave(self, now_ms: int, reason: str) -> None:
        """Ends the subscription. What is assigned is news first (Revoking), then the coordinator is told, except by
        static members of the classic protocol, whose place is kept for their return. Bounded by the session timeout:
        see `is_gone`."""

    def user_polled(self, now_ms: int) -> None:
        """The user is alive. If longer than `max.poll.interval.ms` passes without it, the member leaves the group."""

    def poll(self, now_ms: int) -> int:
        """Does what is due. Returns the milliseconds until it wants to be polled again."""

    def take_news(self) -> list[News]: ...

    def news_done(self, now_ms: int) -> None:
        """Everything that `take_news` returned so far was told to the user."""

    def ask_rebalance(self, reason: str) -> None:
        """The user wants the group to rebalance."""
