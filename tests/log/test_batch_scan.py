from __future__ import annotations

import struct

import pytest

from oncelog.errors import CorruptMessage
from oncelog.log.batch_scan import hop_batches, scan_batches
from oncelog.log.storage import File
from oncelog.records import kernel
from tests.log.driver import make_batch
from tests.support.faulty_storage import FaultyStorage

SIZES = [5, 200, 9000, 1, 40_000, 0, 3000, 3000, 3000]


def file_of(*sizes: int) -> tuple[File, list[int], bytearray]:
    """A file of batches whose values have these sizes; where each begins, and the bytes to damage."""
    storage = FaultyStorage()
    file = storage.open("data/log", create=True)
    positions = []
    for number, size in enumerate(sizes):
        batch = make_batch([b"x" * size])
        kernel.stamp(batch, 0, number, 0)
        positions.append(file.size)
        file.append(batch)
    return file, positions, storage.content("data/log")


@pytest.mark.parametrize("scan_bytes", [61, 100, 4096, 10_000, 1024 * 1024])
def test_a_scan_yields_every_batch_once_whatever_the_size_of_its_reads(
    scan_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.log.batch_scan.SCAN_BYTES", scan_bytes)
    file, positions, content = file_of(*SIZES)
    seen = []
    for scanned in scan_batches(file, 0, file.size, verify_crc=True):
        at = scanned.position
        for header in scanned.headers:
            seen.append((header.base_offset, at))
            assert scanned.data[at - scanned.position :][: header.size_bytes] == content[at : at + header.size_bytes]
            at += header.size_bytes
        assert at == scanned.end_position
    assert seen == list(enumerate(positions))


def test_a_scan_ends_at_the_first_bad_batch() -> None:
    for bad in range(len(SIZES)):
        file, positions, content = file_of(*SIZES)
        content[positions[bad] + 61] ^= 1
        checked = [
            header for scanned in scan_batches(file, 0, file.size, verify_crc=True) for header in scanned.headers
        ]
        assert [header.base_offset for header in checked] == list(range(bad))
        trusted = [
            header for scanned in scan_batches(file, 0, file.size, verify_crc=False) for header in scanned.headers
        ]
        assert len(trusted) == len(SIZES)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_an_impossible_length_ends_a_scan_without_reading_or_allocating_for_it(length: int) -> None:
    file, positions, content = file_of(*SIZES)
    struct.pack_into(">i", content, positions[4] + 8, length)
    scanned = list(scan_batches(file, 0, file.size, verify_crc=False))
    assert scanned[-1].end_position == positions[4]


def test_a_cut_off_batch_is_not_yielded() -> None:
    file, positions, _ = file_of(*SIZES)
    for end in (positions[8] + 1, positions[8] + 60, positions[8] + 61, file.size - 1):
        assert [scanned.end_position for scanned in scan_batches(file, 0, end, verify_crc=True)][-1] == positions[8]
    assert list(scan_batches(file, 0, 0, verify_crc=True)) == []


def test_hops_from_header_to_header() -> None:
    file, positions, _ = file_of(*SIZES)
    for first in range(len(SIZES)):
        hops = [(position, header.base_offset) for position, header in hop_batches(file, positions[first], file.size)]
        assert hops == [(position, number) for number, position in enumerate(positions)][first:]


@pytest.mark.parametrize(("at", "value"), [(16, 1), (8, 0x7F), (11, 1)], ids=["magic", "too long", "misaligned"])
def test_hopping_onto_what_is_no_batch_is_an_error(at: int, value: int) -> None:
    file, positions, content = file_of(*SIZES)
    content[positions[4] + at] = value
    hops = hop_batches(file, 0, file.size)
    for _ in range(4):
        next(hops)
    with pytest.raises(CorruptMessage):
        list(hops)
