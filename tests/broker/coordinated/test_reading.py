"""A coordinator's log that is damaged is not loaded in part."""

from __future__ import annotations

import pytest

from oncelog.broker.coordinated.reading import LogReading
from oncelog.errors import CorruptMessage
from oncelog.log.config import LogConfig
from oncelog.log.partition_log import PartitionLog
from tests.log.driver import DIRECTORY, PARTITION, START_MS, append, make_batch
from tests.support.faulty_storage import FaultyStorage

COUNT = 6


def written() -> tuple[FaultyStorage, PartitionLog]:
    storage = FaultyStorage()
    log = PartitionLog.open(storage, DIRECTORY, PARTITION, LogConfig(), now_ms=START_MS, clean=False)
    for number in range(COUNT):
        append(log, make_batch([b"%d" % number]))
    return storage, log


def read_all(log: PartitionLog) -> list[int]:
    reading = LogReading(log)
    offsets = []
    while not reading.is_over:
        offsets += [header.base_offset for header, _ in reading.read()]
    return offsets


def test_all_batches_in_order() -> None:
    _, log = written()
    assert read_all(log) == list(range(COUNT))


@pytest.mark.parametrize("byte", [0, 6, 7])
@pytest.mark.parametrize("number", range(COUNT - 1))
def test_an_offset_out_of_order_is_noticed(byte: int, number: int) -> None:
    """No checksum covers it, and a jump ahead would leave out what others rely on."""
    storage, log = written()
    content = storage.content(log.active_segment.path)
    content[number * (len(content) // COUNT) + byte] ^= 0x40
    with pytest.raises(CorruptMessage):
        read_all(log)
