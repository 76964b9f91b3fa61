"""Damage to a data folder that must do no harm, since what is damaged can be rebuilt from the log.

Each function is given the data folder of a dead broker and returns the files it damaged.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from tests.faults.scene import TOPIC

BATCH_HEADER_BYTES = 61


def newest_files(data_dir: Path, suffix: str) -> list[Path]:
    """Of every partition the newest file of that kind, unless it is empty."""
    found = []
    for directory in sorted(data_dir.glob(f"**/{TOPIC}-*")):
        files = [path for path in directory.glob(f"*{suffix}") if re.fullmatch(r"\d{20}", path.stem)]
        if files and max(files).stat().st_size:
            found.append(max(files))
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
    """The beginning of a batch of that very segment, as a crash in the middle of a write would leave it."""
    files = newest_files(data_dir, ".log")
    for path in files:
        content = path.read_bytes()
        with open(path, "ab") as file:
            file.write(content[: rng.randrange(1, BATCH_HEADER_BYTES + 200)])
    return files


def append_zeros(data_dir: Path, rng: random.Random) -> list[Path]:
    """What some file systems leave behind after power loss: the size was grown, the data never written."""
    files = newest_files(data_dir, ".log")
    for path in files:
        with open(path, "ab") as file:
            file.write(bytes(rng.randrange(1, 5_000)))
    return files


def append_noise(data_dir: Path, rng: random.Random) -> list[Path]:
    files = newest_files(data_dir, ".log")
    for path in files:
        with open(path, "ab") as file:
            file.write(rng.randbytes(rng.randrange(1, 5_000)))
    return files


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
