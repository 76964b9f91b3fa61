"""Hypothesis strategies for records and for bytes that only look like them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from tests.support.sizes import examples

# Two kernels double every property, and a busy machine is no failure.
quick = settings(max_examples=examples(60), deadline=None)

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 4 * 10**12), INT64)
NULLABLE_BYTES = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300))
HEADER_KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
HEADERS = st.lists(st.tuples(HEADER_KEYS, NULLABLE_BYTES), max_size=4).map(tuple)
ROWS = st.tuples(TIMESTAMPS, NULLABLE_BYTES, NULLABLE_BYTES, HEADERS)
BATCHES_OF_ROWS = st.lists(ROWS, min_size=1, max_size=12)


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """`original` with a few bytes changed, added or cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("set", "truncate", "insert", "delete")))
        at = draw(st.integers(0, max(0, len(data) - 1)))
        if kind == "set" and data:
            data[at] = draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
        elif kind == "truncate":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        else:
            del data[at : at + draw(st.integers(1, 8))]
    return bytes(data)
