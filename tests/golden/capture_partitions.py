"""Captures where Apache Kafka's Java producer puts keys, from its own classes.

    python -m tests.golden.capture_partitions

asks `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` about every key of `tests/support/keys.py` and keeps
both answers in `partitions.bin`. It needs a JDK, for `java` compiles the small source in `java/`; the tests do not.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from tests.support.kafka import java_command
from tests.support.keys import count_for, keys

HERE = Path(__file__).parent
PARTITIONS = HERE / "partitions.bin"
ANSWER = struct.Struct(">iI")  # the hash, signed as in Java; the partition
TIMEOUT_S = 60


def capture() -> None:
    asked = "".join(f"{key.hex()} {count_for(key)}\n" for key in keys())
    command = java_command(str(HERE / "java" / "PartitionForKey.java"))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    answers = [line.split() for line in done.stdout.splitlines()]
    PARTITIONS.write_bytes(b"".join(ANSWER.pack(int(hashed), int(partition)) for hashed, partition in answers))


def captured() -> list[tuple[int, int]]:
    """(hash, partition) of each key, in the order of the keys."""
    return list(ANSWER.iter_unpack(PARTITIONS.read_bytes()))


if __name__ == "__main__":
    capture()
