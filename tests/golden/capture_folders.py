"""Captures log folders that real Apache Kafka wrote: all files of a partition, left cleanly and left by a kill.

    python -m tests.golden.capture_folders

The partition has several segments (rolled by the records' timestamps), an idempotent producer, committed and aborted
transactions, and an index entry every 300 bytes, so that every file of the layout is there and none is large.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka import KafkaBroker

FOLDERS = Path(__file__).parent / "folders"
TOPIC = "orders"
FIRST_TIMESTAMP_MS = 1_700_000_000_000
SEGMENT_MS = 60_000
RECORDS_PER_SEGMENT = 40
SEGMENTS = 3
CONFIG = {
    "segment.ms": str(SEGMENT_MS),
    "index.interval.bytes": "300",
    "segment.index.bytes": "1200",
    "retention.ms": "-1",
}


def main() -> None:
    shutil.rmtree(FOLDERS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafkaBroker(Path(scratch), {"log.retention.ms": "-1"})
        with broker:
            write(broker.bootstrap)
            # The indexes of the last segment are still padded with zeros, and there is no snapshot of the end.
            shutil.copytree(broker.data_dir / f"{TOPIC}-0", FOLDERS / "killed" / f"{TOPIC}-0")
            broker.stop()
            shutil.copytree(broker.data_dir / f"{TOPIC}-0", FOLDERS / "clean" / f"{TOPIC}-0")


def write(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, config=CONFIG)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(SEGMENTS * RECORDS_PER_SEGMENT):
        timestamp = FIRST_TIMESTAMP_MS + number * (2 * SEGMENT_MS // RECORDS_PER_SEGMENT)
        producer.produce(TOPIC, key=b"%d" % number, value=b"value %d" % number, timestamp=timestamp)
        producer.flush()
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "captured"})
    transactional.init_transactions()
    for number in range(4):
        transactional.begin_transaction()
        transactional.produce(TOPIC, value=b"transaction %d" % number)
        transactional.flush()
        if number % 2:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()


if __name__ == "__main__":
    main()
