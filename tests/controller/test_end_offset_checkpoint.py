"""The note of what is durable: read back as written, sharper or less sharp, never wrong."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.controller.end_offset_checkpoint import (
    FILE_NAME,
    MAX_LINES,
    NOTHING_NOTED,
    DurableEnd,
    EndOffsetCheckpoint,
    Noted,
    decode_noted,
    encode_noted,
    read_noted,
)
from oncelog.controller.identity import Identity
from oncelog.log.storage import FileStorage

IDENTITY = Identity("Yh0oGQSfSCW6wqNVAXcmlg", 1, UUID(int=99))


def test_the_last_note_counts(tmp_path: Path) -> None:
    assert read_noted(FileStorage(), str(tmp_path)) == NOTHING_NOTED
    checkpoint = EndOffsetCheckpoint(FileStorage(), str(tmp_path), IDENTITY)
    for offset in (3, 7, 9):
        checkpoint.note(DurableEnd(offset, 2))
        assert read_noted(FileStorage(), str(tmp_path)) == Noted(IDENTITY, DurableEnd(offset, 2))
    EndOffsetCheckpoint(FileStorage(), str(tmp_path), IDENTITY).note(DurableEnd(9, 2))
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) == 2


def test_it_stays_small(tmp_path: Path) -> None:
    checkpoint = EndOffsetCheckpoint(FileStorage(), str(tmp_path), IDENTITY)
    for offset in range(2 * MAX_LINES + 10):
        checkpoint.note(DurableEnd(offset, 1))
    assert len((tmp_path / FILE_NAME).read_text().splitlines()) < MAX_LINES
    assert read_noted(FileStorage(), str(tmp_path)).end == DurableEnd(2 * MAX_LINES + 9, 1)


def test_a_disk_that_does_not_take_it_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    EndOffsetCheckpoint(FileStorage(), str(tmp_path / "nowhere"), IDENTITY).note(DurableEnd(1, 1))
    assert "cannot be written" in caplog.text


@given(st.data())
def test_damage_never_makes_it_say_more(data: st.DataObject) -> None:
    whole = encode_noted(IDENTITY, DurableEnd(5, 1)) + encode_noted(IDENTITY, DurableEnd(12, 3))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for damaged in (bytes(flipped), cut):
        noted = decode_noted(damaged)
        assert noted.identity in (None, IDENTITY)
        assert noted.end in (None, DurableEnd(5, 1), DurableEnd(12, 3))
