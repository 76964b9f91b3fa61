from __future__ import annotations

import gc
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.frame import FrameTooLarge, MalformedFrame
from oncelog.wire.frame_receiver import (
    KEPT_BYTES,
    LARGE_FRAME_BYTES,
    SMALL_BUFFER_BYTES,
    FrameMemory,
    FrameReceiver,
)

LIMIT = 100 * 1024 * 1024
LARGE = 3 * 1024 * 1024


def frame_of(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(receiver: FrameReceiver, stream: bytes, step: int = 1 << 30) -> list[memoryview]:
    frames = []
    position = 0
    while position < len(stream):
        view = receiver.get_buffer()
        count = min(len(view), step, len(stream) - position)
        view[:count] = stream[position : position + count]
        position += count
        frames += list(receiver.received(count))
    return frames


@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 100, 5_000, LARGE_FRAME_BYTES, SMALL_BUFFER_BYTES, 70_000]), max_size=12),
    step=st.sampled_from([1, 3, 1_000, 16_384, 1 << 30]),
)
def test_frames_come_out_whole_however_they_arrive(sizes: list[int], step: int) -> None:
    if step < 100:
        sizes = [min(size, 300) for size in sizes]
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    frames = feed(FrameReceiver(LIMIT, FrameMemory()), b"".join(map(frame_of, payloads)), step)
    assert [bytes(frame) for frame in frames] == payloads


def test_a_large_frame_is_received_into_memory_of_exactly_its_size() -> None:
    receiver = FrameReceiver(LIMIT, FrameMemory())
    stream = frame_of(b"x" * LARGE)
    assert feed(receiver, stream[:10]) == []
    buffer = receiver.get_buffer()
    assert len(buffer) == LARGE - 6
    buffer[:] = stream[10:]
    (frame,) = receiver.received(len(buffer))
    assert frame.obj is buffer.obj
    assert bytes(frame) == stream[4:]


def test_a_frame_is_not_written_to_again() -> None:
    receiver = FrameReceiver(LIMIT, FrameMemory())
    frames = feed(receiver, b"".join(frame_of(bytes([number]) * 20_000) for number in range(20)), 5_000)
    frames += feed(receiver, b"".join(frame_of(bytes([number]) * 50) for number in range(20)), 70)
    assert [frame[0] for frame in frames] == [*range(20), *range(20)]
    assert all(bytes(frame) == bytes([frame[0]]) * len(frame) for frame in frames)


@pytest.mark.parametrize(("size", "error"), [(-1, MalformedFrame), (LIMIT + 1, FrameTooLarge)])
def test_sizes_that_cannot_be(size: int, error: type[Exception]) -> None:
    receiver = FrameReceiver(LIMIT, FrameMemory())
    stream = frame_of(b"good") + struct.pack(">i", size)
    view = receiver.get_buffer()
    view[: len(stream)] = stream
    frames = receiver.received(len(stream))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(error):
        next(frames)


def test_memory_is_used_again_once_nobody_looks_at_it() -> None:
    memory = FrameMemory()
    first = memory.take(LARGE)
    second = memory.take(LARGE)
    assert first.obj is not second.obj
    inner = first[5:6]
    used = id(first.obj)
    del first
    assert id(memory.take(LARGE).obj) != used, "a part of it is still looked at"
    del inner
    assert id(memory.take(LARGE - 1_000).obj) == used


def test_a_small_frame_does_not_hold_a_large_buffer() -> None:
    memory = FrameMemory()
    large = id(memory.take(LARGE).obj)
    assert id(memory.take(LARGE // 10).obj) != large


def test_only_some_memory_is_kept() -> None:
    memory = FrameMemory()
    views = [memory.take(LARGE) for _ in range(10)]
    assert sum(map(len, memory._kept)) <= KEPT_BYTES
    del views
    memory.take(KEPT_BYTES + 1)
    assert sum(map(len, memory._kept)) <= KEPT_BYTES


def test_an_idle_connection_keeps_little() -> None:
    tracemalloc.start()
    try:
        receiver = FrameReceiver(LIMIT, FrameMemory())
        feed(receiver, frame_of(b"x" * 50), 10)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * SMALL_BUFFER_BYTES
