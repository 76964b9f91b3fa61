"""A virtual machine has its memory from its host page by page, when a page is first written to, and may give it back
when nobody uses it. A broker that fills the page cache would then pay for the host's work, which takes longer than its
own. So for as long as benchmarks run, all free memory is given to the page cache: by reading a large file of nothing.
Whoever writes gets pages that have been used before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Progress

SHARE = 0.95
"""Of the free memory."""
STEP_BYTES = 16 * 1024 * 1024


@contextmanager
def used_memory(progress: Progress) -> Iterator[None]:
    """While no memory is free."""
    size_bytes = int(_free_bytes() * SHARE)
    with tempfile.TemporaryFile(prefix="oncelog-bench-") as file:
        progress(f"using {size_bytes // 1_000_000:,} MB of free memory once")
        os.truncate(file.fileno(), size_bytes)
        room = bytearray(STEP_BYTES)
        while file.readinto(room):
            pass
        yield


def _free_bytes() -> int:
    """What nobody uses, not even the page cache; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:")), 0)
