"""A folder that an older oncelog, which keeps no notes of its own, has used since: what was noted before is stale, and
what the older one did is no damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.controller.end_offset_checkpoint import FILE_NAME as NOTE
from oncelog.doctor.checkup import check_up
from oncelog.log.inspection import Severity
from oncelog.log.manifest import FILE_NAME as MANIFEST
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.broker.handlers.conftest import NOW_MS, Asking, open_broker

ORDERS = TopicPartition("orders", 0)


def run(folder: Path, *, new_topic: str) -> None:
    """One life of a broker: it writes metadata, and gives `orders` other segments than it had."""
    ask = Asking(open_broker(folder))
    ask.create(new_topic)
    log = ask.broker.partition("orders", 0)
    for _ in range(3):
        ask.append("orders", 0, NOW_MS)
        log.roll(NOW_MS)
    log.delete_records(log.log_end_offset - 1)
    log.apply_retention(NOW_MS)
    ask.broker.stop(NOW_MS)


def notes(folder: Path) -> dict[Path, bytes]:
    data = folder / "data"
    return {path: path.read_bytes() for path in (data / NOTE, data / "orders-0" / MANIFEST)}


def put_back(found: dict[Path, bytes]) -> None:
    for path, content in found.items():
        path.write_bytes(content)


@pytest.fixture
def used_since(tmp_path: Path) -> Path:
    """Only the notes are as the last run of this oncelog left them."""
    run(tmp_path, new_topic="orders")
    before = notes(tmp_path)
    run(tmp_path, new_topic="of-the-older-one")
    put_back(before)
    return tmp_path


def losses(folder: Path) -> list[str]:
    found = check_up(FileStorage(), str(folder / "data"), deep=True)
    return [each.finding.problem for each in found if each.finding.severity is Severity.LOSS]


def test_what_an_older_oncelog_did_is_no_damage(used_since: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert losses(used_since) == []
    broker = open_broker(used_since)
    assert broker.logs.report.failed == {}
    assert broker.partition("orders", 0).log_end_offset == 6
    assert caplog.text.count("another version of oncelog, or Apache Kafka, has used this folder") == 1


def test_a_start_that_was_killed_halfway_leaves_the_others_stale(used_since: Path) -> None:
    manifest = used_since / "data" / "orders-0" / MANIFEST
    old = manifest.read_bytes()
    open_broker(used_since)  # and killed, let us say before it came to `orders`
    manifest.write_bytes(old)
    for _ in range(2):
        assert losses(used_since) == []
        manifest.write_bytes(old)
        assert open_broker(used_since).logs.report.failed == {}


def test_this_oncelog_believes_its_own_notes(used_since: Path) -> None:
    for name in ("one", "more"):
        run(used_since, new_topic=name)
    segments = sorted((used_since / "data" / "orders-0").glob("*.log"))
    assert len(segments) > 1
    segments[0].unlink()
    assert losses(used_since)
    assert ORDERS in open_broker(used_since).logs.report.failed
