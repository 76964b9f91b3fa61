from __future__ import annotations

from oncelog.wire.buffer_shelf import BUFFER_BYTES, MAX_KEPT, BufferShelf


def test_a_buffer_that_was_left_is_given_again() -> None:
    shelf = BufferShelf()
    buffer = shelf.take()
    assert len(buffer) == BUFFER_BYTES
    assert shelf.take() is not buffer
    address = id(buffer)
    shelf.leave(buffer)
    del buffer
    assert id(shelf.take()) == address
    assert len(shelf) == 0


def test_a_buffer_that_somebody_looks_at_is_not_given_away() -> None:
    shelf = BufferShelf()
    buffer = shelf.take()
    buffer[5:10] = b"frame"
    frame = memoryview(buffer)[5:10]
    shelf.leave(buffer)
    del buffer
    other = shelf.take()
    other[:100] = bytes(100)
    assert bytes(frame) == b"frame"


def test_the_shelf_is_bounded() -> None:
    shelf = BufferShelf()
    for buffer in [shelf.take() for _ in range(MAX_KEPT + 3)]:
        shelf.leave(buffer)
    assert len(shelf) == MAX_KEPT
