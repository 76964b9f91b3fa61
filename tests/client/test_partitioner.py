from __future__ import annotations

import random
from collections import Counter

import pytest

from oncelog.client.partitioner import (
    NO_PARTITION,
    PartitionerError,
    RoundRobinPartitioner,
    StickyPartitioner,
    checked_partition,
    partition_for_key,
)

# From the tests of Kafka's own `Utils.murmur2`; tests/interop/test_java_producer.py asks Kafka itself for many more.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
BATCH = 1_000
DRAWS = 12_000


@pytest.mark.parametrize(("key", "signed"), KNOWN.items())
def test_a_keys_partition_is_the_positive_hash_modulo_the_count(key: bytes, signed: int) -> None:
    assert partition_for_key(key, 7) == (signed & 0x7FFFFFFF) % 7


def shares(queue_bytes: list[int] | None, *, available: list[int] | None = None, adaptive: bool = True) -> list[float]:
    """How often each of four partitions is chosen."""
    sticky = StickyPartitioner(random.Random(7).randrange, BATCH, adaptive)
    counts = Counter(sticky.next(4, queue_bytes, available) for _ in range(DRAWS))
    return [counts[partition] / DRAWS for partition in range(4)]


def about(*expected: float) -> object:
    return pytest.approx(expected, abs=0.02)


def test_the_partition_stays_until_the_next_is_asked_for() -> None:
    sticky = StickyPartitioner(random.Random(7).randrange, BATCH, adaptive=True)
    assert sticky.partition == NO_PARTITION
    for _ in range(20):
        chosen = sticky.next(4)
        assert sticky.partition == chosen
        assert 0 <= chosen < 4


def test_without_load_every_partition_is_as_likely() -> None:
    assert shares(None) == about(0.25, 0.25, 0.25, 0.25)
    assert shares([0, 0, 0, 0]) == about(0.25, 0.25, 0.25, 0.25)
    assert shares([9 * BATCH] * 4) == about(0.25, 0.25, 0.25, 0.25)


def test_a_shorter_queue_is_likelier_by_as_many_batches() -> None:
    """KIP-794: the weight is the longest queue plus one, less the partition's own, in batches begun."""
    assert shares([0, 3 * BATCH, BATCH, BATCH - 1]) == about(4 / 11, 1 / 11, 3 / 11, 3 / 11)


def test_a_longest_queue_is_still_chosen_now_and_then() -> None:
    assert 0 < shares([0, 0, 0, 20 * BATCH])[3] < 0.03


def test_partitions_without_a_leader_are_avoided() -> None:
    assert shares(None, available=[1, 3]) == about(0, 0.5, 0, 0.5)
    assert shares([0, 2 * BATCH, 0, 0], available=[1, 3]) == about(0, 1 / 4, 0, 3 / 4)


def test_if_no_partition_has_a_leader_all_are_taken() -> None:
    assert shares(None, available=[]) == about(0.25, 0.25, 0.25, 0.25)


def test_load_does_not_count_where_adaptation_is_off() -> None:
    assert shares([0, 9 * BATCH, 0, 0], adaptive=False) == about(0.25, 0.25, 0.25, 0.25)


def test_the_only_partition_is_chosen_even_under_load() -> None:
    assert StickyPartitioner(random.Random(7).randrange, BATCH, adaptive=True).next(1, [5 * BATCH]) == 0


def test_batches_of_size_zero_still_weigh() -> None:
    assert StickyPartitioner(lambda n: n - 1, 0, adaptive=True).next(2, [0, 5]) == 1


def test_round_robin_takes_one_after_the_other() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.next(3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_passes_over_partitions_without_a_leader() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.next(4, available=[0, 2, 3]) for _ in range(4)] == [0, 2, 3, 0]
    assert [chooser.next(2, available=[]) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("chosen", [-1, 3, None, True, 1.0, "1"])
def test_a_choice_that_is_no_partition_is_refused(chosen: object) -> None:
    with pytest.raises(
        PartitionerError, match=r"is not a partition of orders, which has 3: choose a number from 0 to 2"
    ):
        checked_partition(chosen, "orders", 3)


def test_a_choice_that_is_a_partition_stands() -> None:
    assert [checked_partition(chosen, "orders", 3) for chosen in (0, 2)] == [0, 2]
