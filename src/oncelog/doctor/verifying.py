"""Reads every batch of every partition: what no start does, since it takes as long as the disk needs.

What is asked of each batch is `log/verification`'s, as before a reader gets it. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.log.checkpoints import CorruptCheckpoint
from oncelog.log.folders import partition_of
from oncelog.log.inspection import Finding, Severity
from oncelog.log.leader_epochs import EpochEntry, LeaderEpochCache
from oncelog.log.manifest import CorruptManifest, read_manifest
from oncelog.log.segment_files import LOG_SUFFIX, offset_of
from oncelog.log.storage import Storage
from oncelog.log.verification import NO_BATCH, BatchOrder, Damage, check_batches


def verify_partitions(storage: Storage, data_directory: str, foreign_epoch: int) -> Iterator[Finding]:
    """`foreign_epoch` is that of `Manifest.is_stale`."""
    for name in storage.list_directory(data_directory):
        if partition_of(name) is not None:
            yield from _verify(storage, f"{data_directory}/{name}", foreign_epoch)


def _verify(storage: Storage, directory: str, foreign_epoch: int) -> Iterator[Finding]:
    found = [(offset_of(name), name) for name in storage.list_directory(directory) if name.endswith(LOG_SUFFIX)]
    segments = sorted((offset, name) for offset, name in found if offset is not None)
    ends = [offset for offset, _ in segments[1:]]
    epochs = _epochs(storage, directory, foreign_epoch)
    for number, (base_offset, name) in enumerate(segments):
        end_offset = ends[number] if number < len(ends) else None
        damage = _first_damage(storage, f"{directory}/{name}", BatchOrder(epochs, base_offset, end_offset))
        # At the very end of a log a bad checksum may be a torn write, of which the next start knows more.
        if damage is not None and not (end_offset is None and damage.problem == NO_BATCH):
            yield Finding(
                f"{directory}/{name}",
                f"the batch at byte {damage.position}: {damage.problem}",
                "reads of it are refused (CORRUPT_MESSAGE); all before and after it is served",
                Severity.LOSS,
                "restore the partition's folder from a copy",
            )


def _first_damage(storage: Storage, path: str, order: BatchOrder) -> Damage | None:
    file = storage.open(path)
    try:
        return check_batches(file, 0, file.size, file.size, order).damage
    finally:
        file.close()


def _epochs(storage: Storage, directory: str, foreign_epoch: int) -> tuple[EpochEntry, ...]:
    """What is sure of the leader epochs: nothing if their file is damaged and the manifest does not know them all."""
    try:
        manifest = read_manifest(storage, directory)
    except CorruptManifest:
        manifest = None
    if manifest is not None and manifest.is_stale(foreign_epoch):
        manifest = None
    if manifest is not None and manifest.is_closed:
        return manifest.epochs
    cache = LeaderEpochCache(storage, directory)
    try:
        cache.load()
    except CorruptCheckpoint:
        return ()
    known = manifest.epochs if manifest is not None else ()
    return cache.entries if cache.entries[: len(known)] == known else ()
