"""What a user asks of a producer's transactions: asked for by a shell, answered by the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.types import TopicPartition


class Kind(Enum):
    """By the method that asks."""

    INIT = "init_transactions()"
    OFFSETS = "send_offsets_to_transaction()"
    PREPARE = "prepare()"
    SHARE = "share()"
    FLUSH = "flush_transaction()"
    COMMIT = "commit()"
    ABORT = "abort()"


class Command:
    """One thing to do. `error` says how it ended once `has_ended`; then `on_end` was called."""

    __slots__ = ("error", "has_ended", "kind", "on_end")

    def __init__(self, kind: Kind, on_end: Callable[[], None]) -> None:
        self.kind = kind
        self.on_end = on_end
        self.has_ended = False
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.has_ended = True
        self.on_end()


class CommitOffsets(Command):
    """Offsets of a group become part of the transaction."""

    __slots__ = ("group", "is_group_added", "offsets")

    def __init__(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, on_end: Callable[[], None]
    ) -> None:
        super().__init__(Kind.OFFSETS, on_end)
        self.offsets = dict(offsets)
        self.group = group
        self.is_group_added = False
        """The coordinator knows that the transaction writes offsets of the group."""
