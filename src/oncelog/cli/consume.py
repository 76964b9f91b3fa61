"""`oncelog consume`: prints the records of a topic, from any place on, until told to stop."""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from oncelog.cli.options import not_negative, positive, seconds, separator, whole_number
from oncelog.cli.reader import END, Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.consumer.consumer import Consumer
from oncelog.errors import OncelogError
from oncelog.records.model import Header
from oncelog.types import IsolationLevel, TopicPartition

EPILOG = """\
FORMAT knows %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %s value, %h headers, %% and \\n, \\t.

examples:
  oncelog consume orders                                     what arrives from now on, until Ctrl-C
  oncelog consume orders --from-beginning --until-end        all that is there now
  oncelog consume orders --from-beginning --max 10 --key-separator :
  oncelog consume orders --partition 0 --offset 4711 --max 1
  oncelog consume orders --from-beginning --isolation read_committed --timeout 5
  oncelog consume orders --group billing                     share the topic with other members, go on after a stop
  oncelog consume orders --format '%p/%o %k=%s\\n'
  oncelog consume orders --from-beginning --until-end --json | jq .value
"""

MAX_WAIT_S = 0.5
"""How late a member of a group notices --timeout at most."""

ISOLATION = {level.name.lower(): level for level in IsolationLevel}


class Shown(Protocol):
    """A record, read with or without a group."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


Render = Callable[[TopicPartition, Shown], bytes]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "consume",
        help="print the records of a topic",
        description="Print the records of a topic.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start at the oldest record, not at the end")
    start.add_argument("--offset", type=whole_number, metavar="N", help="start at this offset (-N: the last N records)")
    parser.add_argument(
        "--partition", dest="partitions", type=not_negative, action="append", metavar="P", help="default: all"
    )
    parser.add_argument("--max", type=positive, metavar="N", help="stop after N records")
    parser.add_argument("--until-end", action="store_true", help="stop at the end the topic has at the start")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="stop when nothing came for S seconds")
    parser.add_argument("--isolation", choices=sorted(ISOLATION), default="read_uncommitted")
    parser.add_argument("--group", metavar="G", help="as a member of this group, from its committed offsets on")
    look = parser.add_mutually_exclusive_group()
    look.add_argument("--key-separator", type=separator, metavar="S", help="print KEY S VALUE")
    look.add_argument("--format", metavar="FORMAT", help="print each record so (see below); no newline is added")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    render = renderer(args)
    if args.group is not None:
        return consume_as_member(args, render)
    config = ClientConfig.of(args.bootstrap_server, client_id="oncelog-consume")
    with BlockingClient(config) as client:
        reader = TopicReader(client, args.topic, args.partitions, ISOLATION[args.isolation])
        reader.start(start_of(args), until_end=args.until_end)
        _copy(reader, render, args.max, args.timeout)
    return 0


def consume_as_member(args: argparse.Namespace, render: Render) -> int:
    """Offsets are committed after the records were written: what is killed in between is printed again."""
    for option, given in (("--offset", args.offset), ("--partition", args.partitions), ("--until-end", args.until_end)):
        if given:
            raise OncelogError(f"{option} and --group do not go together: the group knows where to read, and shares it")
    consumer = Consumer(
        args.bootstrap_server,
        group_id=args.group,
        client_id="oncelog-consume",
        auto_offset_reset="earliest" if args.from_beginning else "latest",
        enable_auto_commit=False,
        isolation_level=args.isolation,
    )
    with consumer:
        consumer.subscribe([args.topic])
        _copy_as_member(consumer, render, args.max, args.timeout)
    return 0


def _copy_as_member(consumer: Consumer, render: Render, limit: int | None, timeout_s: float | None) -> None:
    out = sys.stdout.buffer
    left = limit
    last_news = time.monotonic()
    while left != 0:
        records = consumer.poll(MAX_WAIT_S, max_records=left)
        for record in records:
            out.write(render(TopicPartition(record.topic, record.partition), record))
        out.flush()
        if records:
            consumer.commit()
            last_news = time.monotonic()
        elif timeout_s is not None and time.monotonic() - last_news >= timeout_s:
            return
        left = None if left is None else left - len(records)


def start_of(args: argparse.Namespace) -> Start:
    if args.from_beginning:
        return Start(0)
    return END if args.offset is None else Start(args.offset, exact=True)


def _copy(reader: TopicReader, render: Render, limit: int | None, timeout_s: float | None) -> None:
    out = sys.stdout.buffer
    left = limit
    last_news = time.monotonic()
    while not reader.finished:
        printed = 0
        for partition, record in reader.poll():
            out.write(render(partition, record))
            printed += 1
            if left is not None and printed == left:
                break
        out.flush()
        if left is not None:
            left -= printed
        now = time.monotonic()
        if printed:
            last_news = now
        if left == 0 or (timeout_s is not None and now - last_news >= timeout_s):
            return


def renderer(args: argparse.Namespace) -> Render:
    if args.json:
        return as_json
    if args.format is not None:
        return as_format(args.format)
    if args.key_separator is not None:
        between = args.key_separator.encode()
        return lambda _, record: (record.key or b"") + between + (record.value or b"") + b"\n"
    return lambda _, record: (record.value or b"") + b"\n"


def as_json(partition: TopicPartition, record: Shown) -> bytes:
    """One line per record. What is not UTF-8 comes as base64 under another name, so that nothing is lost."""
    fields: dict[str, Any] = {
        **partition._asdict(),
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"key": key, **_json_bytes("value", value)} for key, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def as_format(text: str) -> Render:
    pieces = list(_format_pieces(text))

    def render(partition: TopicPartition, record: Shown) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(partition, record) for piece in pieces)

    return render


_TOKENS: dict[str, Render] = {
    "t": lambda partition, _: partition.topic.encode(),
    "p": lambda partition, _: b"%d" % partition.partition,
    "o": lambda _, record: b"%d" % record.offset,
    "T": lambda _, record: b"%d" % record.timestamp_ms,
    "k": lambda _, record: record.key or b"",
    "s": lambda _, record: record.value or b"",
    "h": lambda _, record: b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers),
}
_ESCAPES = {"%%": b"%", "\\n": b"\n", "\\t": b"\t"}


def _format_pieces(text: str) -> Iterator[bytes | Render]:
    for piece in re.findall(r"%.?|\\[nt]|[^%\\]+|\\", text):
        if piece in _ESCAPES:
            yield _ESCAPES[piece]
        elif not piece.startswith("%"):
            yield piece.encode()
        elif piece[1:] in _TOKENS:
            yield _TOKENS[piece[1:]]
        else:
            raise OncelogError(f"--format: {piece!r} is unknown; known are %{' %'.join(_TOKENS)} and %%")
