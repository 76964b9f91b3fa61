"""What is wrong with a record itself, said where the user can see it: in `send()`, before anything is done with it.

Key and value are the serializers' business, and its size that of the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from oncelog.client.records import Header
from oncelog.controller.topic_names import check_topic_name

MAX_TIMESTAMP_MS = 2**63 - 1


def check_topic(topic: object) -> None:
    """Raises TypeError or InvalidTopicException: no broker need be asked about a name that no topic can have."""
    if not isinstance(topic, str):
        raise TypeError(f"the topic is a name (str), not {_named(topic)}")
    check_topic_name(topic)


def checked_partition_number(partition: Any) -> int | None:
    """As an int, or None. Raises TypeError; whether the topic has such a partition is asked later."""
    return None if partition is None else _whole_number("partition", partition)


def checked_timestamp(timestamp_ms: Any) -> int | None:
    """As an int, or None. Raises TypeError or ValueError."""
    if timestamp_ms is None:
        return None
    moment_ms = _whole_number("timestamp_ms", timestamp_ms)
    if not 0 <= moment_ms <= MAX_TIMESTAMP_MS:
        raise ValueError(
            f"timestamp_ms is {moment_ms}, but a record's time counts milliseconds since 1970: leave it out to use"
            " the present time"
        )
    return moment_ms


def checked_headers(headers: Any) -> tuple[Header, ...]:
    """As a tuple, whatever iterable they came in. Raises TypeError or ValueError."""
    if not headers:
        return ()
    if isinstance(headers, Mapping | str | bytes) or not isinstance(headers, Iterable):
        raise TypeError(f'headers are pairs of name and bytes, such as [("trace", b"1")], not {_named(headers)}')
    return tuple(_checked_header(header) for header in headers)


def check_callback(on_delivery: Any) -> None:
    if on_delivery is not None and not callable(on_delivery):
        raise TypeError(f"on_delivery is a function of (metadata, error), not {_named(on_delivery)}")


def _checked_header(header: Any) -> Header:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise TypeError(f"a header is a pair of name and bytes, not {_named(header)}")
    name, value = header
    if not isinstance(name, str):
        raise TypeError(f"a header's name is text (str), not {_named(name)}")
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the value of header {name!r} is bytes or None, not {_named(value)}; encode it first")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the header's name {name!r} is no text that UTF-8 can hold: {error}") from None
    return name, value  # type: ignore[return-value]  # the kernel takes any bytes


def _whole_number(field: str, given: Any) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError
        return index(given)
    except TypeError:
        raise TypeError(f"{field} is a whole number, not {_named(given)}") from None


def _named(value: object) -> str:
    return f"{value!r:.80} ({type(value).__name__})"
