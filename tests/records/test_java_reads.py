"""Apache Kafka's own code reads what we write: every codec, headers, nulls, markers, rebuilt batches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog.records import kernel
from oncelog.records.batch import (
    ControlMarker,
    build_batch,
    build_control_batch,
    decode_records,
    rebuild_batch,
    recompress,
)
from oncelog.records.compression import NAMES
from tests.support import parts
from tests.support.kafka import run_tool

pytestmark = pytest.mark.kafka

VALUES = [b"first", b"all work and no play " * 10_000, b"", b"last"]


def written() -> list[bytearray]:
    """Batches at consecutive offsets: one of each codec, the same by way of `recompress`, a marker, a cleaned batch."""
    rows = [(1_700_000_000_000 + n, b"key %d" % n, value, (("h", b"x"), ("n", None))) for n, value in enumerate(VALUES)]
    producer = {"producer_id": 5, "producer_epoch": 1, "transactional": True}
    batches = [
        build_batch(rows, codec=codec, base_offset=4 * codec, leader_epoch=0, base_sequence=4 * codec, **producer)
        for codec in range(5)
    ]
    for codec in range(5):
        other = recompress(batches[codec], kernel.parse_header(batches[codec]), 4 - codec)
        kernel.stamp(other, 0, 20 + 4 * codec, 0)
        batches.append(other)
    marker = ControlMarker(commit=True, coordinator_epoch=3)
    batches.append(build_control_batch(marker, producer_id=5, producer_epoch=1, timestamp_ms=1, base_offset=40))
    full = build_batch(rows, codec=2, base_offset=41)
    kept = [record for record in decode_records(full) if record.offset != 42]
    batches.append(rebuild_batch(kernel.parse_header(full), kept, delete_horizon_ms=1_800_000_000_000))
    return batches


def test_dump_log_segments_reads_every_batch_and_record(tmp_path: Path) -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    batches = written()
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"".join(batches))
    options = ("--files", str(segment), "--print-data-log", "--deep-iteration")
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", *options).stdout
    shallow = [line for line in printed.splitlines() if line.startswith("baseOffset:")]
    assert len(shallow) == len(batches)
    assert all("isvalid: true" in line for line in shallow)
    codecs = [re.search(r"compresscodec: (\w+)", line).group(1) for line in shallow]  # type: ignore[union-attr]
    assert codecs == [*NAMES, *reversed(NAMES), "none", "snappy"]
    payloads = re.findall(r"^\| offset: (\d+) .*?headerKeys: \[(.*?)\] key: (key \d) payload: (.*)$", printed, re.M)
    values = {int(offset): payload.encode() for offset, _, _, payload in payloads}
    wanted = {4 * batch + n: VALUES[n] for batch in range(10) for n in range(4)}
    wanted |= {41: VALUES[0], 43: VALUES[2], 44: VALUES[3]}
    assert values == wanted
    assert {headers for _, headers, _, _ in payloads} == {"h,n"}
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in printed
    assert "deleteHorizonMs: OptionalLong[1800000000000]" in shallow[-1]
