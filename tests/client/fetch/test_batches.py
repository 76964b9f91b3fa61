from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.fetch.batches import batches_end
from tests.support.batches import make_batch


def test_the_end_of_the_last_whole_batch() -> None:
    first = make_batch([b"a", b"b"], base_offset=10, leader_epoch=3)
    second = make_batch([b"c"], base_offset=15, leader_epoch=4, last_offset_delta=6)
    assert batches_end(memoryview(first)) == (12, 3)
    assert batches_end(memoryview(first + second)) == (22, 4)
    for cut in range(1, len(second)):
        assert batches_end(memoryview((first + second)[:-cut])) == (12, 3)


def test_less_than_a_batch() -> None:
    batch = make_batch([b"a"])
    assert batches_end(memoryview(b"")) is None
    assert batches_end(memoryview(batch[:-1])) is None


def test_a_length_that_cannot_be() -> None:
    assert batches_end(memoryview(make_batch([b"a"], length=3))) is None
    assert batches_end(memoryview(make_batch([b"a"], length=-100))) is None


@given(st.binary(max_size=300))
def test_any_bytes_have_an_end_or_none(data: bytes) -> None:
    batches_end(memoryview(data))
