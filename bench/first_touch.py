"""A virtual machine has its memory from its host page by page, when a page is first written to, and may give it back
when nobody uses it. A broker that fills the page cache would then pay for the host's work, which takes longer than its
own. So before benchmarks run all free memory is given to the page cache, by reading a large file of nothing: whoever
writes later gets pages that have been used before. Meanwhile the host is told of no page that comes free. Where that
cannot be asked for (it takes root), the page cache stays full, and whoever writes has to make room first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figures import Progress

SHARE = 0.95
"""Of the free memory."""
STEP_BYTES = 16 * 1024 * 1024

TOLD_BLOCKS = Path("/sys/module/page_reporting/parameters/page_reporting_order")
"""The binary logarithm of the pages in the smallest free block that Linux tells the host of."""
NO_BLOCK = "11"
"""One more than blocks have."""


@contextmanager
def used_memory(progress: Progress) -> Iterator[None]:
    """While no memory is free, or all that is free has been used before."""
    with ExitStack() as held, _host_not_told() as stays:
        size_bytes = int(_free_bytes() * SHARE)
        progress(f"using {size_bytes // 1_000_000:,} MB of free memory once")
        held.enter_context(_filled_page_cache(size_bytes))
        if stays:
            progress(f"until the end {TOLD_BLOCKS} is {NO_BLOCK}: what comes free stays with this machine")
            held.close()
        yield


@contextmanager
def _filled_page_cache(size_bytes: int) -> Iterator[None]:
    with tempfile.TemporaryFile(prefix="oncelog-bench-") as file:
        os.truncate(file.fileno(), size_bytes)
        room = bytearray(STEP_BYTES)
        while file.readinto(room):
            pass
        yield


@contextmanager
def _host_not_told() -> Iterator[bool]:
    """While memory that comes free stays with this machine, if that can be asked for."""
    try:
        before = TOLD_BLOCKS.read_text()
        TOLD_BLOCKS.write_text(NO_BLOCK)
    except OSError:  # there is no such host, or we are not root
        yield False
        return
    try:
        yield True
    finally:
        TOLD_BLOCKS.write_text(before)


def _free_bytes() -> int:
    """What nobody uses, not even the page cache; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:")), 0)
