"""The group coordinator of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply, TopicsView
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message


class GroupCoordinator:
    """Composes classic groups, consumer groups and offsets."""

    def __init__(self, settings: GroupSettings, topics: TopicsView, new_id: Callable[[], str]) -> None:
        raise NotImplementedError

    def handle(self, api_key: ApiKey, body: Message, caller: Caller, now_ms: int) -> Effects:
        """A request's records and replies. Of a request for several groups (DescribeGroups, DeleteGroups, OffsetFetch
        from version 8, ConsumerGroupDescribe) the body holds this partition's groups only, and so does the reply."""
        raise NotImplementedError

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        """What the log says becomes true. Of a live record the timestamp is now."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> Effects:
        """The whole log was replayed: sessions begin anew."""
        raise NotImplementedError

    def expire(self, now_ms: int) -> Effects:
        """What is due by the clock: sessions, join rounds, offsets."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; a time that has passed means at once."""
        raise NotImplementedError

    def topics_changed(self, now_ms: int) -> Effects:
        """Topics were created, grew, or were deleted."""
        raise NotImplementedError

    def forget(self, ticket: object) -> None:
        """The connection of a ticket is gone: nobody reads its reply."""
        raise NotImplementedError

    def unload(self) -> list[Reply]:
        """Another broker coordinates, or the disk failed: all who wait are answered NOT_COORDINATOR."""
        raise NotImplementedError

    def hard_state(self) -> object:
        """Comparable; what a replay of the log must give again."""
        raise NotImplementedError
