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

from oncelog.cli.options import WrongUsage, client_config, not_negative, positive, seconds, separator, whole_number
from oncelog.cli.output import note, reader_is_gone, safe_json
from oncelog.cli.reader import DEFAULT_FETCHING, END, Fetching, Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.settings import BOOTSTRAP_SERVERS, kinds_of
from oncelog.printable import printable
from oncelog.records.model import Header
from oncelog.types import IsolationLevel, TopicPartition

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

ANSWER_S = 1.0
"""How much longer than --timeout a broker is given that does not answer: one that is only slow is no error."""

PATIENCE_S = 5.0
TERMINAL_PATIENCE_S = 1.0
"""How long nothing is printed before that is explained: at once to people, later to scripts, which may not care."""

IN_OPTIONS = {
    "group_id": "use --group",
    "isolation_level": "use --isolation",
    "auto_offset_reset": "use --from-beginning or --offset",
}
"""Settings of a consumer that this command has options for."""

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
    config, fetching = settings_without_group(args)
    with BlockingClient(config) as client:
        with client.within(_answer_ms(args.timeout)):
            reader = TopicReader(client, args.topic, args.partitions, ISOLATION[args.isolation], fetching)
            reader.start(start_of(args), until_end=args.until_end)
        _copy(reader, render, waiting, args.max, args.timeout)
    return 0


def _answer_ms(left_s: float | None) -> int | None:
    """How long a broker may take that is to answer at once, when so much is left of --timeout."""
    return None if left_s is None else int((max(0.0, left_s) + ANSWER_S) * 1000)


def settings_without_group(args: argparse.Namespace) -> tuple[ClientConfig, Fetching]:
    """What -X says of a consumer, as far as it concerns whoever reads alone. Raises WrongUsage, and InvalidConfig."""
    from oncelog.client.consumer_config import ConsumerConfig

    given = client_config(args, client_id="oncelog-consume", fetch_max_bytes=DEFAULT_FETCHING.fetch_max_bytes)
    config = ConsumerConfig.of(given)
    chosen = {key.replace(".", "_"): key for key in given}
    own = {name: getattr(config, name) for name in chosen if name in kinds_of(ClientConfig)}
    fetching = Fetching(*(getattr(config, name) for name in Fetching._fields))
    for name, key in chosen.items():
        if name not in own and name not in Fetching._fields:
            instead = IN_OPTIONS.get(name, "give --group as well, or leave it out")
            raise WrongUsage(f"-X {key} has no effect on who reads without a group: {instead}")
    return _as_client(own), fetching


def _as_client(settings: dict[str, Any]) -> ClientConfig:
    servers = [f"{host}:{port}" for host, port in settings.pop(BOOTSTRAP_SERVERS)]
    return ClientConfig.of(servers, **settings)


def _check_that_one_answers(given: dict[str, Any], timeout_s: float) -> None:
    """A member waits for brokers that are not there yet. With --timeout that would end as if there were no records.
    Raises BrokersUnreachable."""
    from oncelog.client.consumer_config import ConsumerConfig

    config = ConsumerConfig.of(given)
    settings = {name: getattr(config, name) for name in kinds_of(ClientConfig)}
    with BlockingClient(_as_client(settings)) as client, client.within(_answer_ms(timeout_s)):
        client.refresh_metadata([])


class WaitNotice:
    """Says that there is nothing to print at the moment, to whoever wonders why nothing happens; again if it is for
    another reason."""

    def __init__(self, topic: str, patience_s: float = PATIENCE_S) -> None:
        self._topic = topic
        self._patience_s = patience_s
        self._told = ""

    def quiet_for(self, elapsed_s: float, left: int | None, why: str | None = None) -> None:
        """`left` of the records that were asked for have not come; None if their number was not given. `why` they do
        not come, if that is not the end of the topic."""
        why = why or f"at the end of {self._topic}"
        if why == self._told or elapsed_s < self._patience_s:
            return
        self._told = why
        if left is None:
            awaited = "waiting for new records"
        else:
            awaited = f"waiting for {left:,} more record{'' if left == 1 else 's'}"
        note(f"{why}; {awaited} (Ctrl-C stops)")


def consume_as_member(args: argparse.Namespace, render: Render, waiting: WaitNotice) -> int:
    for option, given in (("--offset", args.offset), ("--partition", args.partitions), ("--until-end", args.until_end)):
        if given:
            raise WrongUsage(f"{option} and --group do not go together: the group knows where to read, and shares it")
    from oncelog.cli.consume_group import copy_as_member  # takes a while, and most read without a group
    from oncelog.consumer.consumer import Consumer

    given = client_config(
        args,
        group_id=args.group,
        client_id="oncelog-consume",
        auto_offset_reset="earliest" if args.from_beginning else "latest",
        enable_auto_commit=False,
        isolation_level=args.isolation,
    )
    if args.timeout is not None:
        _check_that_one_answers(given, args.timeout)
    copy_as_member(Consumer(given), render, waiting, args)
    return 0


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
        left_s = None if timeout_s is None else last_news + timeout_s - time.monotonic()
        for partition, record in reader.poll(_answer_ms(left_s)):
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
            waiting.quiet_for(now - last_news, left, _why_quiet(reader))


def _why_quiet(reader: TopicReader) -> str | None:
    """If not because all is read."""
    if not reader.leaderless:
        return None
    one, *more = reader.leaderless
    return f"{len(more) + 1} partitions have no leader" if more else f"{one} has no leader"


# --- how a record looks -----------------------------------------------------------------------------------------------


def renderer(args: argparse.Namespace) -> Render:
    if args.json:
        if args.format is not None or args.key_separator is not None:
            raise WrongUsage("--json says itself how a record looks: leave out --format and --key-separator")
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
            raise WrongUsage(f"--format: {piece!r} is unknown; known are %{' %'.join(tokens)} and %%")
