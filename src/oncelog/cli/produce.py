"""`oncelog produce`: lines from stdin become records, each stored exactly once."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from oncelog.cli.options import WrongUsage, client_config, key_value, not_negative, separator
from oncelog.cli.output import clear_progress, detail, note, print_json, show_progress
from oncelog.cli.record_lines import JsonLines, RecordLines, TextLines, available_lines
from oncelog.cli.stall import watching, why_topic_waits
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.records import RecordMetadata
from oncelog.client.settings import kinds_of
from oncelog.printable import counted
from oncelog.producer.producer import Producer
from oncelog.types import NO_OFFSET, TopicPartition

MAX_LINE_BYTES = 100 * 1024 * 1024
"""As much as brokers read by default; whether a topic takes it is for them to say."""

BUFFER_BYTES = 2 * MAX_LINE_BYTES
DELIVERY_TIMEOUT_MS = 120_000
PROGRESS_EVERY_S = 0.2

EPILOG = """\
Records are sent in batches as input arrives, with acks=all and idempotence: when a connection breaks or a broker
restarts they are sent again under the same sequence numbers, and stored once. While nothing can be stored it says so on
stderr, with the reason, and gives up after two minutes (-X delivery.timeout.ms).

--from-json reads what `oncelog consume --json` prints: keys, values, headers and timestamps are taken as they are,
bytes that are not text as base64, null as null. The topic and the offset in it do not count, nor does the partition
without --keep-partitions.

examples:
  seq 1000 | oncelog produce orders
  echo 'order-7:paid' | oncelog produce orders --key-separator :
  echo 'order-7:NULL' | oncelog produce orders --key-separator : --null-marker NULL       a tombstone
  oncelog produce orders --partition 2 --header source=import < records.txt
  echo '{"key": "order-7", "value": "paid", "headers": [{"key": "trace", "value": "1"}]}' |
      oncelog produce orders --from-json
  oncelog consume orders --from-beginning --until-end --json > orders.jsonl
  oncelog produce copy --from-json --keep-partitions < orders.jsonl
  oncelog produce orders -X linger.ms=50 -X compression.type=zstd < records.txt
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
    parser.add_argument(
        "--null-marker", metavar="S", help="a key or value that is exactly S is null; a null value is a tombstone"
    )
    parser.add_argument("--from-json", action="store_true", help="lines are what `oncelog consume --json` prints")
    parser.add_argument(
        "--keep-partitions", action="store_true", help="with --from-json: each record goes to the partition it names"
    )
    parser.add_argument("--partition", type=not_negative, metavar="P", help="default: by key, else in turn")
    parser.add_argument(
        "--header", dest="headers", type=key_value, action="append", default=[], metavar="KEY=VALUE",
        help="a header on every record; may be repeated",
    )  # fmt: skip
    parser.add_argument("--compression", choices=["none", "gzip", "snappy", "lz4", "zstd"], help="default: none")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    check_options(args)
    config = client_config(args, **producer_defaults(args))
    ProducerConfig.of(config)  # what is wrong with it is said before anybody is asked anything
    shared = shared_by_clients(config)
    lines = record_lines(args, partition_count(args, shared))
    stored = Stored()
    producer = Producer(config)
    with watching(lambda: (stored.sent, stored.records), lambda: why_topic_waits(shared, args.topic)):
        try:
            send_all(args.topic, lines, producer, stored)
        except BaseException as failure:
            producer.close(0)
            if isinstance(failure, KeyboardInterrupt):
                stored.tell_interrupted()
            raise
        producer.close()
    error = stored.error or lines.refused
    if error is not None:
        raise error
    stored.finish(args.topic)
    if args.json:
        print_json({"topic": args.topic, "records": stored.records, "last_offsets": stored.last_offsets})
    return 0


def send_all(topic: str, lines: RecordLines, producer: Producer, stored: Stored) -> None:
    for arrived in available_lines(sys.stdin.buffer):
        for partition, key, value, headers, timestamp_ms in lines.records(arrived):
            stored.sent += 1
            producer.send(topic, value, key, headers, partition, timestamp_ms, on_delivery=stored)
        if stored.error is not None or lines.refused is not None:
            break
    producer.flush()


def check_options(args: argparse.Namespace) -> None:
    if args.from_json and (args.key_separator is not None or args.null_marker is not None):
        raise WrongUsage("--from-json says itself what is a key and what is null: leave out the other options")
    if args.keep_partitions and not args.from_json:
        raise WrongUsage("--keep-partitions is for --from-json; plain lines name no partition")
    if args.keep_partitions and args.partition is not None:
        raise WrongUsage("give either --partition or --keep-partitions")


def producer_defaults(args: argparse.Namespace) -> dict[str, Any]:
    own = {
        "client_id": "oncelog-produce",
        "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
        "max_block_ms": DELIVERY_TIMEOUT_MS,
        "buffer_memory": BUFFER_BYTES,
        "max_request_size": MAX_LINE_BYTES,
    }
    return own if args.compression is None else {**own, "compression_type": args.compression}


def shared_by_clients(config: dict[str, Any]) -> dict[str, Any]:
    """Those settings of a producer that every client has."""
    known = kinds_of(ClientConfig)
    return {key: value for key, value in config.items() if key.replace(".", "_") in known}


def partition_count(args: argparse.Namespace, config: dict[str, Any]) -> int:
    """Of the topic, which must exist, and with it the partition that was asked for."""
    settings = {"default.api.timeout.ms": DELIVERY_TIMEOUT_MS, **config}
    with BlockingClient(ClientConfig.of(settings)) as client:
        if args.partition is not None:
            client.partition(TopicPartition(args.topic, args.partition))
        return len(client.topic(args.topic).partitions)


def record_lines(args: argparse.Namespace, partition_count: int) -> RecordLines:
    headers = [(key, value.encode()) for key, value in args.headers]
    if args.from_json:
        return JsonLines(
            partition_count, headers=headers, keep_partitions=args.keep_partitions, partition=args.partition
        )
    return TextLines(
        partition_count,
        headers=headers,
        key_separator=None if args.key_separator is None else args.key_separator.encode(),
        null_marker=None if args.null_marker is None else args.null_marker.encode(),
        partition=args.partition,
    )


class Stored:
    """What the brokers confirmed, and what they refused first; with a counter on stderr, for people only. Called in
    the producer's thread."""

    def __init__(self) -> None:
        self.sent = 0
        self.records = 0
        self.last_offsets: dict[int, int] = {}
        """Of each partition written to, the offset of the last record. Absent if only the broker knows it."""
        self.error: Exception | None = None
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
            show_progress(f"{counted(self.records, 'record')} stored")

    def tell_interrupted(self) -> None:
        if self.records < self.sent:
            rest = counted(self.sent - self.records, "record")
            sent = counted(self.sent, "record")
            note(f"{self.records:,} of {sent} confirmed as stored; {rest} may or may not be stored")

    def finish(self, topic: str) -> None:
        if self._visible:
            seconds = time.monotonic() - self._began
            clear_progress()
            detail(f"{counted(self.records, 'record')} stored in {topic} ({seconds:.1f} s)")
