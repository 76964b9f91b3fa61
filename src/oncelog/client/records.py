"""What goes into a producer, and what comes back: plain values, shared by its core, its shells and its interceptors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

Header = tuple[str, "bytes | None"]


class ProducerRecord(NamedTuple):
    """One record as the user gave it: key and value are not serialized yet."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    """The partitioner chooses where it is None."""
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    """The time of `send()` where it is None."""


class RecordMetadata(NamedTuple):
    """Where a record was stored."""

    topic: str
    partition: int
    offset: int
    """-1 if nobody knows it: with `acks=0`, and for a repeat that the broker recognised but no longer remembered."""
    timestamp_ms: int
    """The record's own time, or the broker's where the topic says `LogAppendTime`."""


def _new_metadata(kind: Any, *fields: Any) -> Any:
    return tuple.__new__(kind, fields)  # where a NamedTuple's constructor ends, without its detour


if TYPE_CHECKING:
    new_metadata = _new_metadata
else:
    try:
        from oncelog.client._records import new_metadata
    except ImportError:
        new_metadata = _new_metadata
