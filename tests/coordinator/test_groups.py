"""Which partition keeps a group."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups import coordinator_for


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("billing", -109829509),
        ("my-group", -1906497762),
        # Its hash is Java's smallest integer, of which Kafka takes 0.
        ("polygenelubricants", 0),
        ("gr\u00fc\u00dfe", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_javas_hash_of_the_id(group_id: str, java_hash: int) -> None:
    assert coordinator_for(group_id, 50) == abs(java_hash) % 50
    assert coordinator_for(group_id, 2**31) == abs(java_hash)


@given(st.text(max_size=200))
def test_the_hash_of_any_text(text: str) -> None:
    expected = 0
    for unit in struct.iter_unpack(">H", text.encode("utf-16-be")):
        expected = (31 * expected + unit[0]) % 2**32
    expected = expected - 2**32 if expected >= 2**31 else expected
    assert coordinator_for(text, 2**31) == (0 if expected == -(2**31) else abs(expected))
