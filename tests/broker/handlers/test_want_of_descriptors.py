"""Reading where no descriptor is left: what was read before is answered, and nobody hears that a disk has failed."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest

from oncelog.broker.descriptors import WARN_EVERY_MS
from tests.broker.handlers.test_fetch import LONG_MS, READ_COMMITTED, answers, batches, filled, request, wanted
from tests.broker.support import NOW_MS, Desk, ScarceStorage

REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR = 9, 56
ULIMIT = "(ulimit -n)"


@pytest.fixture
def storage() -> ScarceStorage:
    return ScarceStorage()


@pytest.fixture
def desk(storage: ScarceStorage) -> Desk:
    """A broker that holds no file open, since nothing was written to it yet."""
    filled(storage, "/data").broker.stop(NOW_MS)
    return Desk(storage, "/data")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
def test_what_was_read_is_answered_and_the_rest_comes_next(
    desk: Desk, storage: ScarceStorage, caplog: pytest.LogCaptureFixture, error: int, isolation: int
) -> None:
    storage.missing, storage.error = ("orders-1",), error
    body = request(wanted(0), wanted(1), isolation_level=isolation, session_epoch=0)
    message = desk.ask("fetch", 12, body)
    assert {index: (each["error_code"], batches(each)) for index, each in answers(message).items()} == {
        0: (0, 3),
        1: (0, 0),
    }
    (warning,) = warnings(caplog)
    assert ULIMIT in warning
    assert "orders-1" in warning
    storage.missing = ()
    again = request(
        wanted(0, 3), isolation_level=isolation, session_id=message["session_id"], session_epoch=1, max_wait=1
    )
    assert {index: batches(each) for index, each in answers(desk.ask("fetch", 12, again)).items()}[1] == 1


def test_what_was_read_gives_its_descriptors_back_at_once(desk: Desk, storage: ScarceStorage) -> None:
    """The rest waits for them: no answer waits for more bytes, nor for its client's pace."""
    storage.missing = ("orders-1",)
    body = request(wanted(0), wanted(1), min_bytes=1 << 20, max_wait=LONG_MS)
    assert batches(answers(desk.ask("fetch", 12, body))[0]) == 3


def test_where_nothing_can_be_read_clients_ask_again(
    desk: Desk, storage: ScarceStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.missing = ("orders-0", "orders-1")

    def codes(now_ms: int) -> dict[int, Any]:
        found = answers(desk.ask("fetch", 12, request(wanted(0), wanted(1)), now_ms))
        return {index: each["error_code"] for index, each in found.items()}

    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + WARN_EVERY_MS):
        assert codes(now_ms) == {0: REPLICA_NOT_AVAILABLE, 1: REPLICA_NOT_AVAILABLE}
    first, second = warnings(caplog)
    assert ULIMIT in first
    assert "3 more like this" in second
    storage.missing = ()
    assert codes(NOW_MS) == {0: 0, 1: 0}


def test_offsets_by_timestamp(desk: Desk, storage: ScarceStorage, caplog: pytest.LogCaptureFixture) -> None:
    storage.missing = ("orders-0",)
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 0}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": [asked]}]}
    (topic,) = desk.ask("list_offsets", 5, body)["topics"]
    assert topic["partitions"][0]["error_code"] == REPLICA_NOT_AVAILABLE
    assert ULIMIT in warnings(caplog)[0]


def test_a_disk_that_fails_is_told_as_such(
    desk: Desk, storage: ScarceStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.missing, storage.error = ("orders-1",), errno.EIO
    found = answers(desk.ask("fetch", 12, request(wanted(0), wanted(1))))
    assert {index: each["error_code"] for index, each in found.items()} == {0: 0, 1: KAFKA_STORAGE_ERROR}
    assert warnings(caplog) == []
