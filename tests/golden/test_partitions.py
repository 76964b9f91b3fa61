"""Where Kafka's Java producer puts a key, ours puts it: asked of Kafka's own classes, for each kernel."""

from __future__ import annotations

from types import ModuleType

from tests.golden.capture_partitions import captured
from tests.support.keys import COUNTS, count_for, keys

LEAST = 10_000


def test_there_is_enough_to_compare() -> None:
    placed = keys()
    assert len(captured()) == len(placed) == len(set(placed)) >= LEAST
    assert {count_for(key) for key in placed} == set(COUNTS)
    assert set(range(300)) <= {len(key) for key in placed}
    assert {byte for key in placed for byte in key} == set(range(256))


def test_every_key_has_the_hash_that_kafka_gives_it(kernel: ModuleType) -> None:
    assert [kernel.murmur2(key) for key in keys()] == [hashed % 2**32 for hashed, _ in captured()]


def test_every_key_goes_to_the_partition_that_kafkas_producer_chooses(kernel: ModuleType) -> None:
    chosen = [kernel.partition_of(key, count_for(key)) for key in keys()]
    assert chosen == [partition for _, partition in captured()]
