"""Finishes or undoes what a crash interrupted in a log directory: removals, compactions, replaced files.

Owns the meaning of `.deleted`, `.cleaned`, `.swap` and `.tmp` after a crash, which is Kafka's:

- `.deleted` and `.tmp` are gone already; only the space was not given back.
- `.cleaned` is a compaction that had not finished writing: it never happened.
- `.swap` is a compaction that had finished: it takes the place of every segment in its range. Unless a `.cleaned` file
  with a lower offset remains: then the same compaction had not yet renamed all of its segments, and never happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from oncelog.log.batch_scan import hop_batches
from oncelog.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_of,
)
from oncelog.log.storage import TEMPORARY_SUFFIX, Storage

logger = logging.getLogger(__name__)


BeforeSwap = Callable[[list[int], int, int], None]
"""Told, before a compaction is finished, where its segments begin and which range of offsets they replace."""


def _nothing(starts: list[int], first: int, end: int) -> None:
    """Nobody needs to know."""


def settle_interrupted(storage: Storage, directory: str, before_swap: BeforeSwap = _nothing) -> list[str]:
    """Leave only complete files in the directory; their names. Indexes without a segment are left to
    `remove_orphans`: they may be all that is left of one that ought to be there."""
    names = storage.list_directory(directory)
    removed = {name for name in names if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX, CLEANED_SUFFIX))}
    cleaned = [offset_of(name) or 0 for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if cleaned:
        removed.update(name for name in swaps if (offset_of(name) or 0) >= min(cleaned))
    _remove(storage, directory, removed)
    if remaining := [name for name in swaps if name not in removed]:
        _finish_swaps(storage, directory, remaining, set(names) - removed, before_swap)
        return storage.list_directory(directory)
    return [name for name in names if name not in removed]


def _finish_swaps(storage: Storage, directory: str, swaps: list[str], names: set[str], before_swap: BeforeSwap) -> None:
    segments = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    starts = [offset_of(name) or 0 for name in segments]
    ends = [_next_offset(storage, f"{directory}/{name}") for name in segments]
    if segments:
        replaced = {
            name
            for name in names
            if name.endswith(SEGMENT_SUFFIXES) and min(starts) <= (offset_of(name) or 0) < max(ends)
        }
        replaced -= {name for name in replaced if _is_in_place(name, starts, swaps)}
        logger.info("%s: finishing a compaction that replaces %d files", directory, len(replaced))
        before_swap(starts, min(starts), max(ends))
        _remove(storage, directory, replaced)
    # The `.log` last: until it has its name, the next start finds the `.swap` and does all of this again.
    for name in sorted(swaps, key=_rename_order):
        storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _is_in_place(name: str, starts: list[int], swaps: list[str]) -> bool:
    """Whether this is a file of a new segment that has its name already. The time index gets it first, and only when
    nothing of the replaced segment is left there."""
    offset = offset_of(name)
    time_index = f"{name.partition('.')[0]}{TIME_INDEX_SUFFIX}{SWAP_SUFFIX}"
    return offset in starts and time_index not in swaps and name + SWAP_SUFFIX not in swaps


def _rename_order(swap: str) -> int:
    """As `Segment.change_suffix` renames them."""
    suffixes = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
    return next((rank for rank, suffix in enumerate(suffixes) if swap.endswith(suffix + SWAP_SUFFIX)), 0)


def _next_offset(storage: Storage, path: str) -> int:
    file = storage.open(path)
    next_offset = offset_of(path.rpartition("/")[2]) or 0
    for _, header in hop_batches(file, 0, file.size):
        next_offset = header.next_offset
    return next_offset


def remove_orphans(storage: Storage, directory: str, names: list[str]) -> list[str]:
    """Remove indexes whose segment is gone, as its `.log` goes first when it is removed; the other names."""
    logs = {offset_of(name) for name in names if name.endswith(LOG_SUFFIX)}
    orphans = {name for name in names if name.endswith(SEGMENT_SUFFIXES) and offset_of(name) not in logs}
    _remove(storage, directory, orphans)
    return [name for name in names if name not in orphans]


def _remove(storage: Storage, directory: str, names: set[str]) -> None:
    for name in sorted(names):
        storage.remove(f"{directory}/{name}")
