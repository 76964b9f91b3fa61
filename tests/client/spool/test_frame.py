from __future__ import annotations

import pytest

from oncelog.client.spool.frame import (
    END,
    FRAME_BYTES,
    MARK,
    OLD_MARK,
    RESERVED_BYTES,
    Damage,
    Frame,
    decode_frame,
    encode_frame,
    has_reserve,
    reserved_end,
    walk,
)

BODIES = [b"first", b"", b"the third one"]


def file_of(bodies: list[bytes], number: int = 3) -> bytes:
    data = b""
    for body in bodies:
        data += encode_frame(number, len(data), body)
    return data


def found(data: bytes, *, may_be_torn: bool = True) -> list[bytes | Damage]:
    return [bytes(item.body) if isinstance(item, Frame) else item for item in walk(3, data, may_be_torn=may_be_torn)]


def test_frames_come_back_in_order() -> None:
    assert found(file_of(BODIES)) == BODIES
    assert found(b"") == []


def reserved(data: bytes) -> bytes:
    return data + bytes(reserved_end(len(data)) - len(data))


def old_file_of(bodies: list[bytes]) -> bytes:
    """In the first format: another mark, no ends."""
    data = b""
    for body in bodies:
        data += encode_frame(3, len(data), body).replace(MARK, OLD_MARK).removesuffix(END)
    return data


def test_zeros_are_reserved_behind_the_frames() -> None:
    assert found(reserved(file_of(BODIES))) == BODIES
    assert [reserved_end(size) for size in (0, 1, RESERVED_BYTES - 1, RESERVED_BYTES)] == [RESERVED_BYTES] * 3 + [
        2 * RESERVED_BYTES
    ]


def test_wherever_a_file_is_cut_it_shows() -> None:
    whole = reserved(file_of([bytes(1_000)] * 100))
    assert has_reserve(whole)
    assert not any(has_reserve(whole[:size]) for size in [*range(len(whole) - 3_000, len(whole)), *range(3_000)])
    cut_in_a_frame = whole[:RESERVED_BYTES]
    assert has_reserve(cut_in_a_frame), "as if by chance, in the zeros of a value"
    assert [item.is_torn for item in walk(3, cut_in_a_frame, may_be_torn=True) if isinstance(item, Damage)] == [False]


def test_a_write_that_was_not_completed_is_torn() -> None:
    whole = file_of(BODIES)
    start = len(file_of(BODIES[:2]))
    for end in range(start + 1, len(whole)):
        data = reserved(whole[:end])
        *before, damage = found(data)
        assert before == BODIES[:2]
        assert isinstance(damage, Damage)
        assert (damage.position, damage.is_torn) == (start, True)
        assert found(data, may_be_torn=False)[-1] == Damage(start, damage.size_bytes, is_torn=False)


def test_in_the_first_format_a_tail_cut_anywhere_is_torn() -> None:
    whole = old_file_of(BODIES)
    assert found(whole) == BODIES
    start = len(old_file_of(BODIES[:2]))
    for end in range(start + 1, len(whole)):
        assert found(whole[:end]) == [*BODIES[:2], Damage(start, end - start, is_torn=True)]
        assert found(whole[:end], may_be_torn=False)[-1] == Damage(start, end - start, is_torn=False)


def test_zeros_behind_the_last_frame_are_torn() -> None:
    data = file_of(BODIES)
    assert found(data + bytes(700))[-1] == Damage(len(data), 700, is_torn=True)
    assert found(data + bytes(700) + b"x")[-1] == Damage(len(data), 701, is_torn=False)


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_noticed_and_costs_one_frame(bit: int) -> None:
    whole = file_of(BODIES)
    middle = len(file_of(BODIES[:1]))
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 1 << bit
        items = found(bytes(data), may_be_torn=False)
        damages = [item for item in items if isinstance(item, Damage)]
        assert len(damages) == 1
        hit = 0 if position < middle else 1 if position < middle + FRAME_BYTES else 2
        assert [item for item in items if item not in damages] == [*BODIES[:hit], *BODIES[hit + 1 :]]


def test_a_whole_last_frame_with_a_flipped_bit_is_not_torn() -> None:
    """Its write had finished, so it was promised."""
    whole = file_of(BODIES)
    for position in range(len(file_of(BODIES[:2])), len(whole)):
        for bit in range(8):
            data = bytearray(reserved(whole))
            data[position] ^= 1 << bit
            damage = found(bytes(data))[-1]
            assert isinstance(damage, Damage)
            assert not damage.is_torn


def test_a_frame_inside_a_value_is_not_taken_for_one() -> None:
    inner = encode_frame(3, 0, b"not sent by anybody")
    data = bytearray(file_of([b"in front", inner, b"behind"]))
    data[len(file_of([b"in front"]))] ^= 1
    assert [item for item in found(bytes(data)) if isinstance(item, bytes)] == [b"in front", b"behind"]


def test_a_frame_of_another_file_or_place_is_not_taken_for_one() -> None:
    frame = memoryview(encode_frame(3, 40, b"x"))
    assert decode_frame(3, 40, frame) is not None
    assert decode_frame(3, 41, frame) is None
    assert decode_frame(4, 40, frame) is None
