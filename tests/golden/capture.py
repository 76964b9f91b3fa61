"""Captures golden bytes: segments that real Apache Kafka wrote, and what other readers than ours say is in them.

    python -m tests.golden.capture

starts Apache Kafka, writes the topics below with librdkafka and with Kafka's own Java producer, and keeps each first
segment in `segments/` beside `manifest.json`. The manifest holds the records as librdkafka's consumer returned them
and the batches as Kafka's DumpLogSegments described them: nothing in it comes from oncelog.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka import KafkaBroker, run_tool

HERE = Path(__file__).parent
SEGMENTS = HERE / "segments"
MANIFEST = HERE / "manifest.json"
SEGMENT_NAME = "00000000000000000000.log"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
INLINE_BYTES = 256  # longer values are kept as length and digest
QUIET_S = 5.0
CLEANER_TIMEOUT_S = 60.0

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]

ROWS: list[Row] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (None, None, []),
    (b"", b"", []),
    (
        b"headers",
        b"h",
        [("one", b"1"), ("empty", b""), ("null", None), ("one", b"again"), ("\u00fc\u20ac", b"\x00\xff")],
    ),
    (b"\x00\xff", bytes(range(256)), []),
    # More than one block of snappy (32 KiB) and of lz4 (64 KiB), yet small when compressed.
    (b"long", b"all work and no play " * 5_000, []),
]
SHORT_ROWS = ROWS[:-1]

# Records of 2023 beside markers of today: neither age may roll or delete a segment.
SETTINGS = {"log.roll.ms": str(2**63 - 1), "log.retention.ms": "-1", "log.cleaner.backoff.ms": "500"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}


def main() -> None:
    shutil.rmtree(SEGMENTS, ignore_errors=True)
    SEGMENTS.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafkaBroker(Path(scratch), SETTINGS)
        with broker:
            topics = write_all(broker)
            records = {topic: consume(broker, topic) for topic in topics}
        manifest = {}
        for topic in topics:
            segment = SEGMENTS / f"{topic}.log"
            shutil.copyfile(broker.data_dir / f"{topic}-0" / SEGMENT_NAME, segment)
            batches = describe(segment)
            end = int(batches[-1]["lastOffset"])
            kept = [record for record in records[topic] if record["offset"] <= end]
            manifest[topic] = {"batches": batches, "records": kept}
            print(f"{topic}: {segment.stat().st_size} bytes, {len(batches)} batches, {len(kept)} records")
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")


def write_all(broker: KafkaBroker) -> list[str]:
    topics = {f"librdkafka-{codec}": {} for codec in CODECS}
    topics |= {f"java-{codec}": {} for codec in CODECS}
    topics |= {"idempotent": {}, "transactions": {}, "compacted": COMPACTED}
    topics["append-time"] = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    created = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in topics.items()])
    for future in created.values():
        future.result()
    for codec in CODECS:
        rows = SHORT_ROWS if codec == "none" else ROWS
        produce(broker, f"librdkafka-{codec}", rows, {"compression.type": codec})
        produce_with_java(broker, f"java-{codec}", codec)
    for _ in range(3):
        produce(broker, "idempotent", SHORT_ROWS, {"enable.idempotence": True})
    produce(broker, "append-time", SHORT_ROWS, {})
    produce(broker, "append-time", ROWS, {"compression.type": "zstd"})
    write_transactions(broker)
    write_compacted(broker)
    return list(topics)


def producer(broker: KafkaBroker, options: dict[str, Any]) -> Producer:
    # Everything given before a flush in one batch.
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 300, **options})


def send(client: Producer, topic: str, rows: list[Row], first_timestamp_ms: int = FIRST_TIMESTAMP_MS) -> None:
    for index, (key, value, headers) in enumerate(rows):
        timestamp = first_timestamp_ms + index * index - (7 if index == 3 else 0)
        client.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers)


def produce(broker: KafkaBroker, topic: str, rows: list[Row], options: dict[str, Any]) -> None:
    client = producer(broker, options)
    send(client, topic, rows)
    assert client.flush(30) == 0


def produce_with_java(broker: KafkaBroker, topic: str, codec: str) -> None:
    """The console producer: lines of headers, key and value. It numbers its batches, being idempotent."""
    lines = ["a:1,b:NULL\tkey\tvalue", "NULL\tNULL\tno key", "NULL\ttombstone\tNULL"]
    if codec != "none":
        lines.append("NULL\tlong\t" + "no play " * 12_500)
    properties = {
        "parse.key": "true",
        "parse.headers": "true",
        "headers.delimiter": "\t",
        "key.separator": "\t",
        "null.marker": "NULL",
    }
    options = [f"--reader-property={key}={value}" for key, value in properties.items()]
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    how = ("--compression-codec", codec, "--batch-size", "200000", "--timeout", "500")
    run_tool("org.apache.kafka.tools.ConsoleProducer", *where, *how, *options, text_in="\n".join(lines) + "\n")


def write_transactions(broker: KafkaBroker) -> None:
    first = producer(broker, {"transactional.id": "first"})
    second = producer(broker, {"transactional.id": "second", "compression.type": "lz4"})
    for client in (first, second):
        client.init_transactions(30)
        client.begin_transaction()
    send(first, "transactions", SHORT_ROWS)
    first.flush(30)
    send(second, "transactions", ROWS)
    second.flush(30)
    first.commit_transaction(30)
    second.abort_transaction(30)
    first.begin_transaction()
    send(first, "transactions", SHORT_ROWS)
    first.flush(30)
    first.abort_transaction(30)


def write_compacted(broker: KafkaBroker) -> None:
    """Keys written again and again, one deleted; then wait until the cleaner has rewritten the first segment."""
    topic = "compacted"
    for round_number in range(3):
        rows: list[Row] = [(b"k%d" % key, b"v%d" % round_number, [("r", b"%d" % round_number)]) for key in range(5)]
        produce(broker, topic, [*rows, (b"k%d" % round_number, None, []), (b"only %d" % round_number, b"x", [])], {})
    segment = broker.data_dir / f"{topic}-0" / SEGMENT_NAME
    full_size = segment.stat().st_size
    deadline = time.monotonic() + CLEANER_TIMEOUT_S
    while segment.stat().st_size >= full_size:
        assert time.monotonic() < deadline, "the cleaner did not run"
        time.sleep(1.1)
        now_ms = time.time_ns() // 1_000_000
        client = producer(broker, {"linger.ms": 0})
        client.produce(topic, b"rolls the segment", b"roll", partition=0, timestamp=now_ms)
        client.flush(30)


def consume(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "capture", "enable.auto.commit": False}
    reader = Consumer({**settings, "isolation.level": "read_uncommitted", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    records: list[dict[str, Any]] = []
    last_arrival = time.monotonic()
    while time.monotonic() - last_arrival < QUIET_S:
        message = reader.poll(0.5)
        if message is None or message.error():
            if records:
                break
            continue
        last_arrival = time.monotonic()
        records.append(as_json(message))
    reader.close()
    return records


def as_json(message: Message) -> dict[str, Any]:
    _, timestamp = message.timestamp()
    return {
        "offset": message.offset(),
        "timestamp": timestamp,
        "key": bytes_as_json(message.key()),
        "value": bytes_as_json(message.value()),
        "headers": [[key, bytes_as_json(value)] for key, value in message.headers() or []],
    }


def bytes_as_json(data: bytes | None) -> Any:
    """Null, base64, or for long data a list of length and SHA-256."""
    if data is None:
        return None
    if len(data) <= INLINE_BYTES:
        return base64.b64encode(data).decode()
    return [len(data), hashlib.sha256(data).hexdigest()]


def describe(segment: Path) -> list[dict[str, str]]:
    """One dictionary per batch, of the words DumpLogSegments prints for it."""
    with tempfile.TemporaryDirectory() as scratch:
        named = Path(scratch) / SEGMENT_NAME  # the tool wants a segment's own name
        shutil.copyfile(segment, named)
        printed = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(named)).stdout
    lines = [line for line in printed.splitlines() if line.startswith("baseOffset:")]
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines]


if __name__ == "__main__":
    main()
