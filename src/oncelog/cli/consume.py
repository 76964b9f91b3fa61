"""`oncelog consume`: prints the records of a topic, from any place on, until told to stop."""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from oncelog.cli.options import client_config, not_negative, positive, seconds, separator, whole_number
from oncelog.cli.output import note, reader_is_gone, safe_json
from oncelog.cli.reader import END, Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.errors import OncelogError
from oncelog.printable import printable
from oncelog.records.model import Header
from oncelog.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from oncelog.consumer.consumer import Consumer

EPILOG = """\
On a terminal, characters that it would obey are shown as \\x1b and the like; --raw prints them, as a pipe gets them.

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
  oncelog consume orders --from-beginning --until-end --json > orders.jsonl     `produce --from-json` reads it
  oncelog consume orders --from-beginning | head -1
"""

MAX_WAIT_S = 0.5
"""How late a member of a group notices --timeout at most."""

PATIENCE_S = 5.0
TERMINAL_PATIENCE_S = 1.0
"""How long nothing is printed before that is explained: at once to people, later to scripts, which may not care."""

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
Field = Callable[[bytes | None], bytes]
"""How a key or a value is shown."""


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
    parser.add_argument("--null-marker", metavar="S", help="print S for a null key or value (default: nothing)")
    parser.add_argument("--raw", action="store_true", help="on a terminal: print bytes as they are")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    render = renderer(args)
    waiting = WaitNotice(args.topic, *((TERMINAL_PATIENCE_S,) if sys.stderr.isatty() else ()))
    if args.group is not None:
        return consume_as_member(args, render, waiting)
    config = ClientConfig.of(client_config(args, client_id="oncelog-consume"))
    with BlockingClient(config) as client:
        reader = TopicReader(client, args.topic, args.partitions, ISOLATION[args.isolation])
        reader.start(start_of(args), until_end=args.until_end)
        _copy(reader, render, waiting, args.max, args.timeout)
    return 0


class WaitNotice:
    """Says once that there is nothing to print at the moment, to whoever wonders why nothing happens."""

    def __init__(self, topic: str, patience_s: float = PATIENCE_S) -> None:
        self._topic = topic
        self._patience_s = patience_s
        self._is_told = False

    def quiet_for(self, elapsed_s: float, left: int | None, why: str | None = None) -> None:
        """`left` of the records that were asked for have not come; None if their number was not given."""
        if self._is_told or elapsed_s < self._patience_s:
            return
        self._is_told = True
        if left is None:
            awaited = "waiting for new records"
        else:
            awaited = f"waiting for {left:,} more record{'' if left == 1 else 's'}"
        note(f"{why or f'at the end of {self._topic}'}; {awaited} (Ctrl-C stops)")


def consume_as_member(args: argparse.Namespace, render: Render, waiting: WaitNotice) -> int:
    """Offsets are committed after the records were written: what is killed in between is printed again."""
    for option, given in (("--offset", args.offset), ("--partition", args.partitions), ("--until-end", args.until_end)):
        if given:
            raise OncelogError(f"{option} and --group do not go together: the group knows where to read, and shares it")
    from oncelog.consumer.consumer import Consumer  # takes a while, and most read without a group

    consumer = Consumer(
        client_config(
            args,
            group_id=args.group,
            client_id="oncelog-consume",
            auto_offset_reset="earliest" if args.from_beginning else "latest",
            enable_auto_commit=False,
            isolation_level=args.isolation,
        )
    )
    with consumer:
        consumer.subscribe([args.topic])
        _copy_as_member(consumer, render, waiting, args)
    return 0


def _copy_as_member(consumer: Consumer, render: Render, waiting: WaitNotice, args: argparse.Namespace) -> None:
    out = sys.stdout.buffer
    left = args.max
    last_news = time.monotonic()
    while left != 0:
        records = consumer.poll(MAX_WAIT_S, max_records=left)
        for record in records:
            out.write(render(TopicPartition(record.topic, record.partition), record))
        out.flush()
        left = None if left is None else left - len(records)
        now = time.monotonic()
        if records:
            consumer.commit()
            last_news = now
        elif reader_is_gone() or (args.timeout is not None and now - last_news >= args.timeout):
            return
        else:
            has_none = not consumer.assignment()
            why = f"group {args.group} has given this member no partition of {args.topic} yet" if has_none else None
            waiting.quiet_for(now - last_news, left, why)


def start_of(args: argparse.Namespace) -> Start:
    if args.from_beginning:
        return Start(0)
    return END if args.offset is None else Start(args.offset, exact=True)


def _copy(reader: TopicReader, render: Render, waiting: WaitNotice, limit: int | None, timeout_s: float | None) -> None:
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
        if not printed:
            if reader_is_gone():
                return
            waiting.quiet_for(now - last_news, left)


# --- how a record looks -----------------------------------------------------------------------------------------------


def renderer(args: argparse.Namespace) -> Render:
    if args.json:
        return as_json
    show = _as_it_is if args.raw or not sys.stdout.isatty() else shown_on_a_terminal
    null = (args.null_marker or "").encode()

    def field(data: bytes | None) -> bytes:
        return null if data is None else show(data)

    if args.format is not None:
        return as_format(args.format, field)
    if args.key_separator is not None:
        between = args.key_separator.encode()
        return lambda _, record: field(record.key) + between + field(record.value) + b"\n"
    return lambda _, record: field(record.value) + b"\n"


def _as_it_is(data: bytes) -> bytes:
    return data


def shown_on_a_terminal(data: bytes) -> bytes:
    """What a terminal would obey, and what is not UTF-8, as `\\x1b`."""
    return printable(data.decode(errors="backslashreplace")).encode()


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
    return safe_json(json.dumps(fields, ensure_ascii=False)).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def as_format(text: str, field: Field) -> Render:
    pieces = list(_format_pieces(text, _tokens(field)))

    def render(partition: TopicPartition, record: Shown) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(partition, record) for piece in pieces)

    return render


def _tokens(field: Field) -> dict[str, Render]:
    return {
        "t": lambda partition, _: field(partition.topic.encode()),
        "p": lambda partition, _: b"%d" % partition.partition,
        "o": lambda _, record: b"%d" % record.offset,
        "T": lambda _, record: b"%d" % record.timestamp_ms,
        "k": lambda _, record: field(record.key),
        "s": lambda _, record: field(record.value),
        "h": lambda _, record: b",".join(field(key.encode()) + b"=" + field(value) for key, value in record.headers),
    }


_ESCAPES = {"%%": b"%", "\\n": b"\n", "\\t": b"\t"}


def _format_pieces(text: str, tokens: dict[str, Render]) -> Iterator[bytes | Render]:
    for piece in re.findall(r"%.?|\\[nt]|[^%\\]+|\\", text):
        if piece in _ESCAPES:
            yield _ESCAPES[piece]
        elif not piece.startswith("%"):
            yield piece.encode()
        elif piece[1:] in tokens:
            yield tokens[piece[1:]]
        else:
            raise OncelogError(f"--format: {piece!r} is unknown; known are %{' %'.join(tokens)} and %%")
