"""What goes into the group coordinator besides requests, and what comes out: values only.

Owns the order of effects (records first, replies afterwards), the settings, and the view on the cluster's topics.
Never decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

from oncelog.coordinator.records import CoordinatorRecord
from oncelog.wire.codec import Message


class Caller(NamedTuple):
    """Who asked, and how to answer: the ticket comes back, as it is, with the reply."""

    ticket: object
    client_id: str
    client_host: str
    version: int


class Reply(NamedTuple):
    ticket: object
    body: Message
    """Fit for the version of the caller."""


class Effects(NamedTuple):
    """DURABLE FIRST, SENT AFTERWARDS: the records are one batch; they are appended, then replayed one by one, and the
    replies leave when the high watermark has passed everything appended so far. That holds without records as well:
    a reply may tell of what an earlier, not yet durable batch says."""

    records: list[CoordinatorRecord]
    replies: list[Reply]

    def extend(self, other: Effects) -> None:
        self.records.extend(other.records)
        self.replies.extend(other.replies)


def no_effects() -> Effects:
    return Effects([], [])


def answer(caller: Caller, body: Message) -> Effects:
    """A reply, and nothing to remember."""
    return Effects([], [Reply(caller.ticket, body)])


class TopicsView(Protocol):
    """What the coordinator may know of the cluster's topics, as they are now."""

    def partition_count(self, name: str) -> int | None: ...

    def topic_id(self, name: str) -> UUID | None: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]: ...


class GroupOverrides(NamedTuple):
    """The dynamic configs of one group (`consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms`)."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None


NO_OVERRIDES = GroupOverrides()


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's keys that matter to groups, with Kafka's defaults. Dots are underscores; minutes became ms."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    overrides: Callable[[str], GroupOverrides] = field(default=lambda group_id: NO_OVERRIDES)
    """The dynamic configs of a group, by its id."""
