"""What goes into a producer, and what comes back: plain values, shared by its core, its shells and its interceptors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

Header = tuple[str, "bytes | None"]


HeadersGiven = Sequence[tuple[str, "bytes | str | None"]] | Mapping[str, "bytes | str | None"]
"""Headers as users give them: pairs, or a mapping; text is sent as UTF-8."""


class ProducerRecord(NamedTuple):
    """One record as the user gave it: key and value are not serialized yet."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    """The partitioner chooses where it is None."""
    headers: HeadersGiven = ()
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


def _settled(result: RecordMetadata) -> Generator[Any, None, RecordMetadata]:
    """What is awaited in the place of a future that is done."""
    yield from ()
    return result


def _read_ms(clock: Callable[[], float]) -> int:
    """The milliseconds of a clock that tells seconds."""
    return int(clock() * 1000)


def _leave_to_collector(one: object) -> None: ...


def _leave_to_interpreter(kind: type, room: int) -> bool:
    return False


if TYPE_CHECKING:
    new_metadata = _new_metadata
    hide_from_collector = show_to_collector = _leave_to_collector
    settled = _settled
    read_ms = _read_ms
    recycle = _leave_to_interpreter
else:
    try:
        from oncelog.client._records import hide_from_collector, new_metadata, show_to_collector
    except ImportError:
        new_metadata = _new_metadata
        hide_from_collector = show_to_collector = _leave_to_collector
    try:
        from oncelog.client._settled import settled
    except ImportError:
        settled = _settled
    try:
        from oncelog.client._clock import read_ms
    except ImportError:
        read_ms = _read_ms
    try:
        from oncelog.client._recycling import recycle
    except ImportError:
        recycle = _leave_to_interpreter
