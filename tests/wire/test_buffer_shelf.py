from __future__ import annotations

from oncelog.wire.buffer_shelf import BUFFER_BYTES, MAX_KEPT, BufferShelf


def test_a_buffer_that_was_left_is_given_again() -> None:
    shelf = BufferShelf()
    buffer = shelf.take(100_000)
    assert len(buffer) == BUFFER_BYTES
    assert shelf.take(100_000) is not buffer
    address = id(buffer)
    shelf.leave(buffer)
    del buffer
    assert id(shelf.take(100_000)) == address
    assert len(shelf) == 0


def test_a_buffer_that_somebody_looks_at_is_not_given_away() -> None:
    shelf = BufferShelf()
    buffer = shelf.take(100_000)
    buffer[5:10] = b"frame"
    frame = memoryview(buffer)[5:10]
    shelf.leave(buffer)
    del buffer
    other = shelf.take(100_000)
    other[:100] = bytes(100)
    assert bytes(frame) == b"frame"


def test_the_shelf_is_bounded() -> None:
    shelf = BufferShelf()
    for buffer in [shelf.take(100_000) for _ in range(MAX_KEPT + 3)]:
        shelf.leave(buffer)
    assert len(shelf) == MAX_KEPT


def test_buffers_beyond_the_usual_are_not_kept() -> None:
    shelf = BufferShelf()
    large = shelf.take(BUFFER_BYTES + 1)
    assert len(large) > BUFFER_BYTES
    shelf.leave(large)
    assert len(shelf) == 0
