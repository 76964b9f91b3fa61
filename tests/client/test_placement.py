"""Where a record goes: the partition it names, that of its key, or one that is chosen for it."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from oncelog.client.partitioner import PartitionerError
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from oncelog.errors import InvalidConfig
from oncelog.records.kernel import partition_of
from tests.client.accumulating import LEADER, NO_LEADER, accumulator, learned, put

BATCH_SIZE = 1_000


def placement(**settings: Any) -> Placement:
    config = ProducerConfig.of("localhost:9092", **{"batch_size": BATCH_SIZE, **settings})
    return Placement(config, random.Random(7).randrange)


def choices(chooser: Placement, count: int, leaders: tuple[int, ...], value: bytes = b"x" * 100) -> list[int]:
    topic = learned(accumulator(), leaders=leaders)
    return [chooser.queue_for(topic, None, None, value).index for _ in range(count)]


def test_a_partition_that_is_named_wins_over_key_and_partitioner() -> None:
    topic = learned(accumulator(), 5)
    for chooser in (placement(), placement(partitioner=lambda *_: 0), placement(partitioner="round_robin")):
        assert chooser.queue_for(topic, 3, b"key", b"").index == 3


@pytest.mark.parametrize("partition", [-1, 5, True])
def test_a_partition_that_is_none_is_refused(partition: int) -> None:
    with pytest.raises(PartitionerError, match="is not a partition of orders, which has 5"):
        placement().queue_for(learned(accumulator(), 5), partition, None, b"")


@pytest.mark.parametrize("partitioner", ["murmur2", "round_robin"])
def test_a_key_belongs_to_its_partition_even_without_a_leader(partitioner: str) -> None:
    topic = learned(accumulator(), leaders=(NO_LEADER,) * 5)
    for number in range(50):
        key = b"key-%d" % number
        assert placement(partitioner=partitioner).queue_for(topic, None, key, b"").index == partition_of(key, 5)


def test_an_empty_key_is_a_key() -> None:
    topic = learned(accumulator(), 5)
    assert {placement().queue_for(topic, None, b"", b"x" * 2_000).index for _ in range(20)} == {partition_of(b"", 5)}


def test_keys_can_be_ignored() -> None:
    topic = learned(accumulator(), 5)
    chooser = placement(partitioner="sticky")
    assert len({chooser.queue_for(topic, None, b"key", b"x" * 2_000).index for _ in range(50)}) > 1


def test_without_a_key_a_partition_is_kept_for_a_batch() -> None:
    chosen = choices(placement(), 400, (LEADER,) * 5)
    runs = 1 + sum(one != other for one, other in pairwise(chosen))
    assert 20 < runs < 80  # of about eight records each
    assert len(set(chosen)) == 5


def test_round_robin_deals_out_one_by_one() -> None:
    assert choices(placement(partitioner="round_robin"), 7, (LEADER,) * 3) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("partitioner", ["murmur2", "round_robin"])
def test_partitions_without_a_leader_are_passed_over(partitioner: str) -> None:
    chosen = choices(placement(partitioner=partitioner), 200, (LEADER, NO_LEADER, LEADER))
    assert set(chosen) == {0, 2}


def test_shorter_queues_are_likelier_where_that_is_wanted() -> None:
    memory = accumulator(buffer_memory=10_000_000)
    topic = learned(memory, 2)
    for _ in range(100):
        put(memory, topic.queues[0], b"x" * 900)
    counts = {
        is_adaptive: Counter(
            chooser.queue_for(topic, None, None, b"x" * BATCH_SIZE).index
            for chooser in [placement(partitioner_adaptive_partitioning_enable=is_adaptive)]
            for _ in range(500)
        )
        for is_adaptive in (True, False)
    }
    assert counts[True][1] > 450
    assert 200 < counts[False][1] < 300


def test_a_users_partitioner_sees_plain_bytes_and_the_number_of_partitions() -> None:
    seen: list[Any] = []

    def own(*arguments: Any) -> int:
        seen.append(arguments)
        return 2

    topic = learned(accumulator(), 3)
    assert placement(partitioner=own).queue_for(topic, None, bytearray(b"k"), memoryview(b"v")).index == 2
    assert placement(partitioner=own).queue_for(topic, None, None, None).index == 2
    assert seen == [("orders", b"k", b"v", 3), ("orders", None, None, 3)]
    assert type(seen[0][1]) is type(seen[0][2]) is bytes


@pytest.mark.parametrize("chosen", [3, -1, None, True, "0"])
def test_a_users_choice_that_is_no_partition_is_refused(chosen: Any) -> None:
    with pytest.raises(PartitionerError):
        placement(partitioner=lambda *_: chosen).queue_for(learned(accumulator(), 3), None, None, b"")


class TestLibrdkafkas:
    """`tests/interop/test_partitions.py` compares them with confluent-kafka itself."""

    @pytest.mark.parametrize("partitioner", ["consistent", "consistent_random"])
    def test_crc32(self, partitioner: str) -> None:
        topic = learned(accumulator(), 7)
        assert placement(partitioner=partitioner).queue_for(topic, None, b"123456789", b"").index == 0xCBF43926 % 7

    @pytest.mark.parametrize("partitioner", ["fnv1a", "fnv1a_random"])
    @pytest.mark.parametrize(("key", "digest"), [(b"a", 0xE40C292C), (b"foobar", 0xBF9CF968), (b"", 0x811C9DC5)])
    def test_fnv1a_without_its_sign(self, partitioner: str, key: bytes, digest: int) -> None:
        topic = learned(accumulator(), 7)
        expected = abs(digest - 2**32) if digest >= 2**31 else digest
        assert placement(partitioner=partitioner).queue_for(topic, None, key, b"").index == expected % 7

    @pytest.mark.parametrize(("partitioner", "partition"), [("consistent", 0), ("fnv1a", (2**32 - 0x811C9DC5) % 7)])
    def test_records_without_a_key_share_one_partition(self, partitioner: str, partition: int) -> None:
        topic = learned(accumulator(), 7)
        chooser = placement(partitioner=partitioner)
        assert {chooser.queue_for(topic, None, None, b"x" * 2_000).index for _ in range(50)} == {partition}

    @pytest.mark.parametrize(
        ("partitioner", "key"), [("consistent_random", b""), ("consistent_random", None), ("fnv1a_random", None)]
    )
    def test_or_are_spread(self, partitioner: str, key: bytes | None) -> None:
        topic = learned(accumulator(), 7)
        chooser = placement(partitioner=partitioner)
        assert len({chooser.queue_for(topic, None, key, b"x" * 2_000).index for _ in range(50)}) > 1

    def test_they_cannot_ignore_keys(self) -> None:
        with pytest.raises(InvalidConfig, match=r"by their keys, but partitioner\.ignore\.keys is true"):
            placement(partitioner="consistent_random", partitioner_ignore_keys=True)

    def test_random_never_looks_at_keys(self) -> None:
        assert ProducerConfig.of("a:1", partitioner="random").partitioner_ignore_keys
