"""What is wrong with a record itself, said where the user can see it: in `send()`, before anything is done with it.

Key and value are the serializers' business, and its size that of the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncelog.client.arguments import shown, whole_number
from oncelog.client.records import Header
from oncelog.controller.topic_names import check_topic_name

MAX_TIMESTAMP_MS = 2**63 - 1


class _NotGiven:
    """It is neither bytes nor text, so that such a record leaves the short way, which need not ask for it."""

    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN: Any = _NotGiven()
"""As the value of a record: None would be a tombstone, and nobody writes one by leaving something out."""


def check_value(value: object) -> None:
    """Raises TypeError if none was given."""
    if value is NOT_GIVEN:
        raise TypeError(
            "send() needs a value: send(topic, value, key); give value=None to write a tombstone, which deletes its key"
        )


def refuse_foreign(timestamp: object, callback: object) -> None:
    """What confluent-kafka calls these arguments. Raises TypeError if one of them was given."""
    if timestamp is not None:
        raise TypeError("send() takes no timestamp: use timestamp_ms, milliseconds since 1970")
    if callback is not None:
        raise TypeError("send() takes no callback: use on_delivery, called with (metadata, error)")


def check_topic(topic: object) -> None:
    """Raises TypeError or InvalidTopicException: no broker need be asked about a name that no topic can have."""
    if not isinstance(topic, str):
        raise TypeError(f"the topic is a name (str), not {shown(topic)}")
    check_topic_name(topic)


def checked_records(records: Any) -> list[Any]:
    """Of a call that takes many at once: one alone would be taken apart."""
    if isinstance(records, str | bytes | bytearray | memoryview | Mapping) or not isinstance(records, Iterable):
        raise TypeError(f"records are many values or (key, value) pairs, such as in a list; not {shown(records)}")
    return list(records)


def checked_partition_number(partition: Any) -> int | None:
    """As an int, or None. Raises TypeError; whether the topic has such a partition is asked later."""
    return None if partition is None else whole_number(partition, "partition")


def checked_timestamp(timestamp_ms: Any) -> int | None:
    """As an int, or None. Raises TypeError or ValueError."""
    if timestamp_ms is None:
        return None
    moment_ms = whole_number(timestamp_ms, "timestamp_ms")
    if not 0 <= moment_ms <= MAX_TIMESTAMP_MS:
        raise ValueError(
            f"timestamp_ms is {moment_ms}, but a record's time counts milliseconds since 1970: leave it out to use"
            " the present time"
        )
    return moment_ms


def checked_headers(headers: Any) -> tuple[Header, ...]:
    """As a tuple, whatever iterable or mapping they came in; text becomes UTF-8. Raises TypeError or ValueError."""
    if not headers:
        return ()
    if isinstance(headers, Mapping):
        headers = headers.items()
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise TypeError(
            'headers are pairs of name and value, such as [("trace", b"1")], or a mapping such as {"trace": "1"}; not'
            f" {shown(headers)}"
        )
    return tuple(_checked_header(header) for header in headers)


def _checked_header(header: Any) -> Header:
    if not isinstance(header, tuple | list) or len(header) != 2:
        raise TypeError(f"a header is a pair of name and value, not {shown(header)}")
    name, value = header
    if not isinstance(name, str):
        raise TypeError(f"a header's name is text (str), not {shown(name)}")
    if value is not None and not isinstance(value, str | bytes | bytearray | memoryview):
        raise TypeError(f"the value of header {name!r} is bytes, text or None, not {shown(value)}; encode it first")
    try:
        name.encode()
        if isinstance(value, str):
            value = value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"header {name!r} has text that UTF-8 cannot hold: {error}") from None
    return name, value
