"""Damage to a data folder that must do no harm, since what is damaged can be rebuilt from the log.

Each function is given the data folder of a dead broker and returns the files it damaged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from tests.faults.scene import TOPIC

BATCH_HEADER_BYTES = 61


def newest_files(data_dir: Path, suffix: str) -> list[Path]:
    """Of every partition the newest file of that kind that is not empty."""
    found = []
    for directory in sorted(data_dir.glob(f"{TOPIC}-*")):
        files = [path for path in directory.glob(f"*{suffix}") if re.fullmatch(r"\d{20}", path.stem)]
        filled = [path for path in files if path.stat().st_size]
        if filled:
            found.append(max(filled))
    return found


def flip_a_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def delete_newest_snapshot(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".snapshot")
    for path in files:
        path.unlink()
    return files


def flip_a_bit_of_the_newest_snapshot(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".snapshot")
    for path in files:
        flip_a_bit(path, rng)
    return files


def delete_newest_indexes(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".index") + newest_files(data_dir, ".timeindex")
    for path in files:
        path.unlink()
    return files


def flip_a_bit_of_the_newest_indexes(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".index") + newest_files(data_dir, ".timeindex")
    for path in files:
        flip_a_bit(path, rng)
    return files


def cut_the_newest_indexes_short(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".index") + newest_files(data_dir, ".timeindex")
    for path in files:
        with open(path, "r+b") as file:
            file.truncate(rng.randrange(path.stat().st_size))
    return files


def append_a_torn_batch(data_dir: Path, rng: random.Random) -> list[Path]:
    """The beginning of a batch of that topic, as a crash in the middle of a write would leave it."""
    batch = newest_files(data_dir, ".log")[0].read_bytes()
    return _append(data_dir, lambda: batch[: rng.randrange(1, BATCH_HEADER_BYTES + 200)])


def append_zeros(data_dir: Path, rng: random.Random) -> list[Path]:
    """What some file systems leave behind after power loss: the size was grown, the data never written."""
    return _append(data_dir, lambda: bytes(rng.randrange(1, 5_000)))


def append_noise(data_dir: Path, rng: random.Random) -> list[Path]:
    return _append(data_dir, lambda: rng.randbytes(rng.randrange(1, 5_000)))


def _append(data_dir: Path, junk: Callable[[], bytes]) -> list[Path]:
    active_segments = [max(directory.glob("*.log")) for directory in sorted(data_dir.glob(f"{TOPIC}-*"))]
    for path in active_segments:
        with open(path, "ab") as file:
            file.write(junk())
    return active_segments


HARMLESS_DAMAGE = (
    delete_newest_snapshot,
    flip_a_bit_of_the_newest_snapshot,
    delete_newest_indexes,
    flip_a_bit_of_the_newest_indexes,
    cut_the_newest_indexes_short,
    append_a_torn_batch,
    append_zeros,
    append_noise,
)
