"""Folders that Apache Kafka wrote open as ours, and what we write is byte for byte what Kafka wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oncelog.log.checkpoints import read_topic_id
from oncelog.log.config import LogConfig
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import FileStorage
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, read_control_marker
from oncelog.types import TopicPartition
from tests.log.driver import read_records
from tests.support import parts
from tests.support.kafka import run_tool

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_ms=60_000, index_interval_bytes=300, segment_index_bytes=1200, retention_ms=-1)
CAPTURED_MS = 1_794_000_000_000
END_OFFSET = 128
FIRST_TIMESTAMP_MS = 1_700_000_000_000
PERSISTENT = (".log", ".index", ".timeindex", ".txnindex")


def open_copy(kind: str, tmp_path: Path, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    folder = shutil.copytree(FOLDERS / kind / str(PARTITION), tmp_path / str(PARTITION))
    return open_log(folder, clean=clean, recovery_point=recovery_point)


def open_log(folder: Path, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    log = PartitionLog.open(
        FileStorage(), str(folder), PARTITION, CONFIG, now_ms=CAPTURED_MS, clean=clean, recovery_point=recovery_point
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in PERSISTENT}


def captured_batches() -> list[tuple[BatchHeader, bytes]]:
    batches = []
    for path in sorted((FOLDERS / "clean" / str(PARTITION)).glob("*.log")):
        data, position = path.read_bytes(), 0
        for header in kernel.scan(data, 0, len(data), True)[0]:
            batches.append((header, data[position : position + header.size_bytes]))
            position += header.size_bytes
    return batches


@pytest.mark.parametrize(
    ("kind", "clean", "recovery_point"),
    [("clean", True, 0), ("clean", False, 0), ("clean", False, 100), ("killed", False, 0), ("killed", False, 100)],
)
def test_a_folder_of_kafka_opens(kind: str, clean: bool, recovery_point: int, tmp_path: Path) -> None:
    log = open_copy(kind, tmp_path, clean=clean, recovery_point=recovery_point)
    records = read_records(log)
    assert [record.offset for record in records] == list(range(END_OFFSET))
    assert [record.value for record in records[:120]] == [b"value %d" % number for number in range(120)]
    assert log.recovery.truncated_bytes == 0
    assert log.leader_epochs.entries == (EpochEntry(0, 0),)
    transactional = next(entry for entry in log.producers.entries() if entry.last_timestamp > CAPTURED_MS)
    assert log.aborted_transactions(0, END_OFFSET) == [
        AbortedTransaction(transactional.producer_id, 122, 123, 124),
        AbortedTransaction(transactional.producer_id, 126, 127, 128),
    ]
    found = log.find_offset_by_timestamp(FIRST_TIMESTAMP_MS + 3000 * 70 + 1)
    assert found is not None
    assert (found.timestamp, found.offset) == (FIRST_TIMESTAMP_MS + 3000 * 71, 71)
    assert read_topic_id(FileStorage(), str(tmp_path / str(PARTITION))) is not None


@pytest.mark.parametrize("kind", ["clean", "killed"])
def test_recovery_rebuilds_the_indexes_byte_for_byte(kind: str, tmp_path: Path) -> None:
    log = open_copy(kind, tmp_path, clean=False)
    log.close(clean=True, now_ms=CAPTURED_MS)
    assert files(tmp_path / str(PARTITION)) == files(FOLDERS / "clean" / str(PARTITION))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_rebuilt_byte_for_byte_even_after_a_clean_stop(suffix: str, tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "clean" / str(PARTITION), tmp_path / str(PARTITION))
    for path in folder.glob(f"*{suffix}"):
        path.unlink()
    log = open_log(folder, clean=True)
    assert log.recovery.rebuilt_indexes == (0, 21, 42, 63, 84, 105, 120)
    log.close(clean=True, now_ms=CAPTURED_MS)
    assert files(folder) == files(FOLDERS / "clean" / str(PARTITION))


def test_appending_the_same_batches_writes_the_same_files(tmp_path: Path) -> None:
    log = open_log(tmp_path / str(PARTITION), clean=False)
    for header, data in captured_batches():
        if header.is_control:
            appended = log.append_marker(
                read_control_marker(data),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                leader_epoch=header.leader_epoch,
                now_ms=header.max_timestamp,
            )
        else:
            batch = bytearray(data)
            appended = log.append(
                batch, kernel.parse_header(batch), leader_epoch=header.leader_epoch, now_ms=header.max_timestamp
            )
        assert appended.base_offset == header.base_offset
    log.close(clean=True, now_ms=CAPTURED_MS)
    assert files(tmp_path / str(PARTITION)) == files(FOLDERS / "clean" / str(PARTITION))
    epochs = "leader-epoch-checkpoint"
    ours = (tmp_path / str(PARTITION) / epochs).read_bytes()
    assert ours == (FOLDERS / "clean" / str(PARTITION) / epochs).read_bytes()


@pytest.mark.kafka
def test_kafka_reads_our_folder(tmp_path: Path) -> None:
    """DumpLogSegments checks every index entry against the log, and every batch's CRC."""
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    log = open_copy("killed", tmp_path, clean=False)
    batch = bytearray(captured_batches()[0][1])
    log.append(batch, kernel.parse_header(batch)._replace(producer_id=77), leader_epoch=3, now_ms=CAPTURED_MS)
    log.close(clean=True, now_ms=CAPTURED_MS)
    folder = tmp_path / str(PARTITION)
    names = sorted(path for path in folder.iterdir() if path.suffix in (*PERSISTENT, ".snapshot"))
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, names)), "--print-data-log")
    shown = done.stdout + done.stderr
    for complaint in ("isvalid: false", "Mismatches in", "mismatch", "out of order"):
        assert complaint not in shown
    assert shown.count("| offset: ") == END_OFFSET + 1
    assert shown.count("endTxnMarker: ABORT") == 2
    assert shown.count("version: 0 producerId: ") == 2, "the aborted transactions"
    assert "producerId: 77 " in shown
