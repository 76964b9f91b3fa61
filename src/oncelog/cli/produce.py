"""`oncelog produce`: lines from stdin become records, each stored exactly once."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from oncelog.cli.options import key_value, not_negative, separator
from oncelog.cli.output import print_json
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.records import RecordMetadata
from oncelog.errors import OncelogError
from oncelog.producer.producer import Producer
from oncelog.types import NO_OFFSET, TopicPartition

READ_BYTES = 128 * 1024
MAX_LINE_BYTES = 100 * 1024 * 1024
"""As much as brokers read by default; whether a topic takes it is for them to say."""

BUFFER_BYTES = 2 * MAX_LINE_BYTES
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
    reader = LineRecords(args, partition_count(args))
    stored = Stored(args.topic)
    producer = Producer(
        args.bootstrap_server,
        client_id="oncelog-produce",
        compression_type=args.compression,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=DELIVERY_TIMEOUT_MS,
        buffer_memory=BUFFER_BYTES,
        max_request_size=MAX_LINE_BYTES,
    )
    try:
        for lines in available_lines(sys.stdin.buffer):
            for partition, key, value in reader.records(lines):
                producer.send(args.topic, value, key, reader.headers, partition, on_delivery=stored)
            if stored.error is not None or reader.refused is not None:
                break
        producer.flush()
    except BaseException:
        producer.close(0)
        raise
    producer.close()
    error = stored.error or reader.refused
    if error is not None:
        raise error
    stored.finish()
    if args.json:
        print_json({"topic": args.topic, "records": stored.records, "last_offsets": stored.last_offsets})
    return 0


def partition_count(args: argparse.Namespace) -> int:
    """Of the topic, which must exist, and with it the partition that was asked for."""
    config = ClientConfig.of(
        args.bootstrap_server, client_id="oncelog-produce", default_api_timeout_ms=DELIVERY_TIMEOUT_MS
    )
    with BlockingClient(config) as client:
        if args.partition is not None:
            client.partition(TopicPartition(args.topic, args.partition))
        return len(client.topic(args.topic).partitions)


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
    """Turns lines into records, up to a line that is none."""

    def __init__(self, args: argparse.Namespace, partition_count: int) -> None:
        self.headers = [(key, value.encode()) for key, value in args.headers]
        self._separator: bytes | None = args.key_separator.encode() if args.key_separator else None
        self._partition: int | None = args.partition
        self._partition_count = partition_count
        self._line_number = 0
        self._turn = -1
        self.refused: OncelogError | None = None

    def records(self, lines: list[bytes]) -> Iterator[tuple[int | None, bytes | None, bytes]]:
        """(partition, key, value) of each line. Without keys all that arrived together go to one partition: large
        batches."""
        self._turn = (self._turn + 1) % self._partition_count
        for line in lines:
            self._line_number += 1
            if self._separator is None:
                yield self._turn if self._partition is None else self._partition, None, line
                continue
            key, found, value = line.partition(self._separator)
            if not found:
                self.refused = self._no_separator(line)
                return
            yield self._partition, key, value

    def _no_separator(self, line: bytes) -> OncelogError:
        shown = line[:SHOWN_BYTES].decode(errors="replace")
        return OncelogError(
            f"line {self._line_number} has no key separator: {shown!r}; the lines before it are stored; mend it, "
            "then send the rest"
        )


class Stored:
    """What the brokers confirmed, and what they refused first; with a counter on stderr, for people only. Called in
    the producer's thread."""

    def __init__(self, topic: str) -> None:
        self.records = 0
        self.last_offsets: dict[int, int] = {}
        """Of each partition written to, the offset of the last record. Absent if only the broker knows it."""
        self.error: Exception | None = None
        self._topic = topic
        self._visible = sys.stderr.isatty()
        self._began = self._shown = time.monotonic()

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        if metadata is None:
            self.error = self.error or error
            return
        self.records += 1
        if metadata.offset != NO_OFFSET:
            self.last_offsets[metadata.partition] = metadata.offset
        if self._visible and time.monotonic() - self._shown >= PROGRESS_EVERY_S:
            self._shown = time.monotonic()
            print(f"\r{self.records:,} records stored", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        if self._visible:
            seconds = time.monotonic() - self._began
            print(f"\r{self.records:,} records stored in {self._topic} ({seconds:.1f} s)", file=sys.stderr)
