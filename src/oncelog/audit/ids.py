"""The id a record carries so that an audit can recognise it: a stream's name and a number. Pure.

A stream is one producer's records to one partition, or for one key, numbered 0, 1, 2, ... in the order in which they
are sent. The id is the text `STREAM/NUMBER`, for example `shop-3/orders-0/17`: the part after the last slash is the
number. It stands in the header `oncelog-id`, or at the start of the value up to the first space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ID_HEADER = "oncelog-id"
MAX_ID_BYTES = 512
MAX_NUMBER_DIGITS = 18


class RecordId(NamedTuple):
    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.number}"

    def to_bytes(self) -> bytes:
        return str(self).encode()


def parse_id(text: bytes) -> RecordId | None:
    """The id at the start of `text`, or None if there is none."""
    end = text.find(b" ", 0, MAX_ID_BYTES + 1)
    if end < 0:
        if len(text) > MAX_ID_BYTES:
            return None
        end = len(text)
    stream, _, number = text[:end].rpartition(b"/")
    if not stream or not number.isdigit() or len(number) > MAX_NUMBER_DIGITS:
        return None
    try:
        return RecordId(stream.decode(), int(number))
    except UnicodeDecodeError:
        return None


def id_of_record(value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()) -> RecordId | None:
    """The id in the record's header, else the one at the start of its value, else None."""
    for name, text in headers:
        if name == ID_HEADER and text is not None:
            return parse_id(text)
    return parse_id(value) if value is not None else None
