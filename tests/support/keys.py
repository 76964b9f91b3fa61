"""Keys to place: many lengths and all byte values, the same in every run and on every machine."""

from __future__ import annotations

import hashlib

RANDOM_KEYS = 10_000
LENGTHS = 300
LONG_LENGTHS = (1_000, 4_096, 65_537)
REPEATED_BYTES = (0x00, 0x7F, 0x80, 0xFF)  # where a signed byte would be mixed in wrongly
REPEATED_LENGTHS = 130
TEXTS = 1_500

COUNTS = (1, 2, 3, 5, 6, 7, 8, 10, 12, 16, 50, 100, 128, 1_000, 4_096, 2**31 - 1)


def keys() -> list[bytes]:
    """All different; the empty key is among them."""
    single = [bytes([value]) for value in range(256)]
    repeated = [bytes([value]) * length for value in REPEATED_BYTES for length in range(REPEATED_LENGTHS)]
    texts = [
        text.encode() for number in range(TEXTS) for text in (str(number), f"user-{number}", f"schlüssel/{number}")
    ]
    random = [random_bytes(f"key {number}", number % LENGTHS) for number in range(RANDOM_KEYS)]
    long = [random_bytes("long", length) for length in LONG_LENGTHS]
    return list(dict.fromkeys([*single, *repeated, *texts, *random, *long]))


def count_for(key: bytes) -> int:
    """A number of partitions to try the key with: small ones, as topics have, and large ones."""
    return COUNTS[hashlib.sha256(key).digest()[0] % len(COUNTS)]


def random_bytes(seed: str, length: int) -> bytes:
    return hashlib.shake_128(seed.encode()).digest(length)
