"""What `oncelog produce` reads: lines of text, or the JSON that `oncelog consume --json` prints, turned into records.

Reading stops at the first line that is not a record; `refused` then says which one it is and what is wrong with it.
Never sends anything.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol

from oncelog.errors import OncelogError

READ_BYTES = 128 * 1024
SHOWN_BYTES = 60
MAX_TIMESTAMP_MS = 2**63 - 1
MAX_PARTITION = 2**31 - 1

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None


class RecordLines(Protocol):
    refused: OncelogError | None

    def records(self, lines: list[bytes]) -> Iterator[Record]:
        """Of lines that arrived together, up to the first that is not one."""
        ...


def available_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines that are there now, without their newlines; waits for more only when there are none. A typed line is
    so sent at once, and a pipe's thousands together."""
    read1 = getattr(stream, "read1", stream.read)
    rest = b""
    while data := read1(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


class _Turns:
    """Partitions for records without a key: all that arrived together go to one, which makes large batches."""

    def __init__(self, partition_count: int) -> None:
        self._count = partition_count
        self._now = -1

    def next(self) -> int:
        self._now = (self._now + 1) % self._count
        return self._now


class TextLines:
    """Each line is a value, or a key and a value with a separator in between."""

    def __init__(
        self,
        partition_count: int,
        *,
        headers: Headers = (),
        key_separator: bytes | None = None,
        null_marker: bytes | None = None,
        partition: int | None = None,
    ) -> None:
        self._headers = headers
        self._separator = key_separator
        self._null = null_marker
        self._partition = partition
        self._turns = _Turns(partition_count)
        self._line_number = 0
        self.refused: OncelogError | None = None

    def records(self, lines: list[bytes]) -> Iterator[Record]:
        turn = self._turns.next() if self._partition is None else self._partition
        for line in lines:
            self._line_number += 1
            if self._separator is None:
                yield Record(turn, None, self._nullable(line), self._headers)
                continue
            key, found, value = line.partition(self._separator)
            if not found:
                self.refused = _not_a_record(self._line_number, "has no key separator", line)
                return
            nullable = self._nullable(key)
            partition = turn if nullable is None else self._partition
            yield Record(partition, nullable, self._nullable(value), self._headers)

    def _nullable(self, data: bytes) -> bytes | None:
        return None if data == self._null else data


class JsonLines:
    """Each line is an object as `oncelog consume --json` prints it.

    Keys, values, headers and timestamps are taken as they are; the topic and the offset are where the record was, and
    do not count. Nor does its partition, unless partitions are kept.
    """

    def __init__(
        self,
        partition_count: int,
        *,
        headers: Headers = (),
        keep_partitions: bool = False,
        partition: int | None = None,
    ) -> None:
        self._headers = list(headers)
        self._keeps = keep_partitions
        self._partition = partition
        self._turns = _Turns(partition_count)
        self._line_number = 0
        self.refused: OncelogError | None = None

    def records(self, lines: list[bytes]) -> Iterator[Record]:
        turn = self._turns.next()
        for line in lines:
            self._line_number += 1
            if not line.strip():
                continue
            try:
                record = parse_record(line)
            except _BadLine as error:
                self.refused = _not_a_record(self._line_number, str(error), line)
                return
            partition = self._partition
            if partition is None and self._keeps:
                partition = record.partition
            if partition is None and record.key is None:
                partition = turn
            yield record._replace(partition=partition, headers=[*record.headers, *self._headers])


class _BadLine(Exception):
    """What is wrong with a line, as the rest of a sentence about it."""


FIELDS = (
    "topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers",
)  # fmt: skip
HEADER_FIELDS = ("key", "value", "value_base64")


def parse_record(line: bytes) -> Record:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadLine(f"is not JSON ({error})") from None
    _check_fields("is", fields, FIELDS)
    if "value" not in fields and "value_base64" not in fields:
        raise _BadLine('has neither "value" nor "value_base64"; a tombstone is "value": null')
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise _BadLine('has "headers" that are not a list, such as [{"key": "trace", "value": "1"}]')
    return Record(
        _number(fields, "partition", MAX_PARTITION),
        _data(fields, "key"),
        _data(fields, "value"),
        [_header(one) for one in headers],
        _number(fields, "timestamp_ms", MAX_TIMESTAMP_MS),
    )


def _header(fields: Any) -> tuple[str, bytes | None]:
    _check_fields("has a header that is", fields, HEADER_FIELDS)
    name = fields.get("key")
    if not isinstance(name, str):
        raise _BadLine('has a header without a "key", which is its name')
    _encoded(name, "key")
    return name, _data(fields, "value")


def _check_fields(what: str, fields: Any, known: Sequence[str]) -> None:
    if not isinstance(fields, dict):
        raise _BadLine(f'{what} not a JSON object, such as {{"key": "order-7", "value": "paid"}}')
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise _BadLine(f"has an unknown field {name!r}{hint}")


def _data(fields: dict[str, Any], name: str) -> bytes | None:
    """Text, or bytes as base64 under the other name; null or missing is null."""
    text, coded = fields.get(name), fields.get(f"{name}_base64")
    if coded is None:
        if text is not None and not isinstance(text, str):
            raise _BadLine(f"has a {name!r} that is neither text nor null; put it into a string")
        return None if text is None else _encoded(text, name)
    if text is not None:
        raise _BadLine(f"has both {name!r} and '{name}_base64'")
    try:
        return base64.b64decode(coded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _BadLine(f"has a '{name}_base64' that is not base64") from None


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _BadLine(f"has half a character in {name!r}; use base64 for what is not text") from None


def _number(fields: dict[str, Any], name: str, most: int) -> int | None:
    """None if it is missing or negative, which is how consumers print that there is none."""
    number = fields.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number > most:
        raise _BadLine(f"has a {name!r} that is not a whole number up to {most}")
    return number if number >= 0 else None


def _not_a_record(number: int, problem: str, line: bytes) -> OncelogError:
    shown = line[:SHOWN_BYTES].decode(errors="replace")
    return OncelogError(
        f"line {number} {problem}: {shown!r}; the lines before it are stored; fix it, then send the rest"
    )
