"""A disk without space: a clear answer, nothing acknowledged that is not stored, and a way back."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.scene import (
    PARTITIONS,
    SEGMENT_BYTES,
    TOPIC,
    Scene,
    no_acknowledged_record_is_lost_doubled_or_misplaced,
)
from tests.support.batches import make_batch
from tests.support.raw import Message, RawClient

KAFKA_STORAGE_ERROR = 56
DISK_BYTES = 12 * 1024 * 1024
FILLER_BYTES = 6 * 1024 * 1024
FULL_TIMEOUT_S = 120.0
SMALL_BATCHES = {"batch.num.messages": 50}
"""Of the load, however far it has fallen behind: a batch that is larger than what a file can hold never fits, and rolls
the segment each time, so that small records would always find room in a new one."""


def produce(scene: Scene, partition: int) -> Message:
    """What a Produce request with one record is answered. It carries no id, so no audit counts it, and is large enough
    to fill what is left where the load has come to a stop over the other partitions."""
    with RawClient((scene.broker.host, scene.broker.port)) as client:
        records = {"index": partition, "records": make_batch([b"raw" * 5_000])}
        message = {"acks": -1, "timeout": 5_000, "topic_data": [{"name": TOPIC, "partition_data": [records]}]}
        answer: Message = client.request("produce", 9, message)["responses"][0]["partition_responses"][0]
        return answer


def await_storage_errors(scene: Scene) -> None:
    """Wait until every partition answers KAFKA_STORAGE_ERROR. No other error may be seen on the way."""
    deadline = time.monotonic() + FULL_TIMEOUT_S
    refused: set[int] = set()
    while len(refused) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {sorted(refused)} refuse records:\n{scene.broker.log_tail()}"
        for partition in range(PARTITIONS):
            answer = produce(scene, partition)
            assert answer["error_code"] in (0, KAFKA_STORAGE_ERROR), answer
            if answer["error_code"]:
                assert answer["base_offset"] == -1
                refused.add(partition)
        time.sleep(0.05)


def answers_of(scene: Scene) -> set[int]:
    return {produce(scene, partition)["error_code"] for partition in range(PARTITIONS)}


def come_back(scene: Scene) -> None:
    """Space has returned: a partition serves again by itself, or says that it is offline until a restart."""
    answers = answers_of(scene)
    assert answers <= {0, KAFKA_STORAGE_ERROR}
    if KAFKA_STORAGE_ERROR in answers:
        scene.broker.stop()
        scene.broker.start()
    scene.await_progress(100)
    assert answers_of(scene) == {0}


def test_files_that_cannot_grow(tmp_path: Path) -> None:
    """The limit on a process's file sizes tears a write as a full disk does, and needs no privileges."""
    with Scene(tmp_path, client=SMALL_BATCHES) as scene:
        pid = scene.broker.pid
        assert pid is not None
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2 + 77, unlimited[1]))
        await_storage_errors(scene)
        assert scene.broker.pid == pid, f"the broker died:\n{scene.broker.log_tail()}"
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        come_back(scene)
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


def test_a_restart_while_files_cannot_grow(tmp_path: Path) -> None:
    with Scene(tmp_path, client=SMALL_BATCHES) as scene:
        pid = scene.broker.pid
        assert pid is not None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2 + 77, resource.RLIM_INFINITY))
        await_storage_errors(scene)
        scene.crash()
        scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount_point)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode != 0:
        pytest.skip(f"mounting a small disk needs privileges: {mounted.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", "-l", str(mount_point)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(FILLER_BYTES))
    # What the client holds back while the disk is full must fit once there is space.
    with Scene(small_disk, client={"queue.buffering.max.messages": 2_000}) as scene:
        pid = scene.broker.pid
        await_storage_errors(scene)
        assert scene.broker.pid == pid, f"the broker died:\n{scene.broker.log_tail()}"
        scene.load.stop()
        filler.unlink()
        if KAFKA_STORAGE_ERROR in answers_of(scene):
            scene.broker.stop()
            scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
