"""`oncelog produce`: lines from stdin become records, each stored exactly once."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from oncelog.cli.options import key_value, not_negative, separator
from oncelog.cli.output import print_json
from oncelog.cli.sender import ExactlyOnceSender, RecordInput
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.partitioner import partition_for_key
from oncelog.clock import now_ms
from oncelog.errors import OncelogError
from oncelog.records.compression import codec_named
from oncelog.types import TopicPartition

READ_BYTES = 128 * 1024
"""How much input goes into one batch at most: even one-letter lines stay below the usual max.message.bytes."""

DELIVERY_TIMEOUT_MS = 120_000
PROGRESS_EVERY_S = 0.2
SHOWN_BYTES = 60

EPILOG = """\
Records are sent in batches as input arrives, with acks=all and idempotence: when a connection breaks or a broker
restarts they are sent again under the same sequence numbers, and stored once.

examples:
  seq 1000 | oncelog produce orders
  echo 'order-7:paid' | oncelog produce orders --key-separator :
  oncelog produce orders --partition 2 --header source=import < records.txt
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "produce",
        help="send lines from stdin to a topic",
        description="Send lines from stdin to a topic, each line a record.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--key-separator", type=separator, metavar="S", help="lines are KEY S VALUE; equal keys go to one partition"
    )
    parser.add_argument("--partition", type=not_negative, metavar="P", help="default: by key, else in turn")
    parser.add_argument(
        "--header", dest="headers", type=key_value, action="append", default=[], metavar="KEY=VALUE",
        help="a header on every record",
    )  # fmt: skip
    parser.add_argument(
        "--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], default="none", help="default: none"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config = ClientConfig.of(
        args.bootstrap_server, client_id="oncelog-produce", default_api_timeout_ms=DELIVERY_TIMEOUT_MS
    )
    progress = Progress(args.topic)
    with BlockingClient(config) as client:
        partition_count = len(client.topic(args.topic).partitions)
        if args.partition is not None:
            client.partition(TopicPartition(args.topic, args.partition))
        sender = ExactlyOnceSender(client, args.topic, codec=codec_named(args.compression))
        reader = LineRecords(args, partition_count)
        for lines in available_lines(sys.stdin.buffer):
            records = reader.by_partition(lines)
            sender.send(records)
            progress.sent(sum(map(len, records.values())))
            if reader.refused is not None:
                raise reader.refused
    progress.finish()
    if args.json:
        print_json({"topic": args.topic, "records": progress.records, "last_offsets": sender.last_offsets})
    return 0


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


class LineRecords:
    """Turns lines into records and chooses their partitions, up to a line that is none."""

    def __init__(self, args: argparse.Namespace, partition_count: int) -> None:
        self._separator: bytes | None = args.key_separator.encode() if args.key_separator else None
        self._partition: int | None = args.partition
        self._headers = [(key, value.encode()) for key, value in args.headers]
        self._partition_count = partition_count
        self._line_number = 0
        self._turn = -1
        self.refused: OncelogError | None = None

    def by_partition(self, lines: list[bytes]) -> dict[int, list[RecordInput]]:
        self._turn = (self._turn + 1) % self._partition_count
        timestamp_ms = now_ms()
        records: dict[int, list[RecordInput]] = {}
        for line in lines:
            self._line_number += 1
            key: bytes | None = None
            value = line
            if self._separator is not None:
                key, found, value = line.partition(self._separator)
                if not found:
                    self.refused = self._no_separator(line)
                    break
            records.setdefault(self._choose(key), []).append((timestamp_ms, key, value, self._headers))
        return records

    def _no_separator(self, line: bytes) -> OncelogError:
        shown = line[:SHOWN_BYTES].decode(errors="replace")
        return OncelogError(
            f"line {self._line_number} has no key separator: {shown!r}; the lines before it are stored; mend it, "
            "then send the rest"
        )

    def _choose(self, key: bytes | None) -> int:
        if self._partition is not None:
            return self._partition
        if key is None:
            return self._turn  # all lines that arrived together: large batches
        return partition_for_key(key, self._partition_count)


class Progress:
    """A counter on stderr, for people only."""

    def __init__(self, topic: str) -> None:
        self.records = 0
        self._topic = topic
        self._visible = sys.stderr.isatty()
        self._began = self._shown = time.monotonic()

    def sent(self, count: int) -> None:
        self.records += count
        now = time.monotonic()
        if self._visible and now - self._shown >= PROGRESS_EVERY_S:
            self._shown = now
            print(f"\r{self.records:,} records stored", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self._visible:
            seconds = time.monotonic() - self._began
            print(f"\r{self.records:,} records stored in {self._topic} ({seconds:.1f} s)", file=sys.stderr)
