from __future__ import annotations

import pytest

from oncelog.client.partitioner import murmur2, partition_for_key

# From the tests of Kafka's own `Utils.murmur2`.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KNOWN.items())
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_a_keys_partition_is_the_positive_hash_modulo_the_count() -> None:
    assert partition_for_key(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7
