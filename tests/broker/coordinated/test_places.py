"""Which partition keeps a key: as Kafka computes it, and without remembering what is odd."""

from __future__ import annotations

import pytest

from oncelog.broker.coordinated import places
from oncelog.broker.coordinated.places import MAX_REMEMBERED_LENGTH, REMEMBERED, place_of

PARTITIONS = 50


@pytest.mark.parametrize(("key", "java_hash"), [("", 0), ("a", 97), ("group", 98_629_247), ("é", 233)])
def test_by_javas_hash_of_the_name(key: str, java_hash: int) -> None:
    assert place_of(key, PARTITIONS) == java_hash % PARTITIONS


def test_long_keys_are_not_remembered() -> None:
    places._remembered.cache_clear()
    for length in range(MAX_REMEMBERED_LENGTH + 1, MAX_REMEMBERED_LENGTH + 100):
        place_of("x" * length, PARTITIONS)
    assert places._remembered.cache_info().currsize == 0
    for number in range(2 * REMEMBERED):
        place_of(str(number), PARTITIONS)
    assert places._remembered.cache_info().currsize == REMEMBERED
