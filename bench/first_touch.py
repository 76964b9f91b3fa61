"""Memory that a virtual machine has never used costs its host a fault for every page, when it is first written to. A
broker that fills the page cache would pay that instead of what is measured, so it is paid before."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path

from bench.figures import Progress

SHARE = 0.8
"""Of the free memory: the rest is for whoever runs beside."""
STEP_BYTES = 64 * 1024 * 1024


def touch_free_memory(progress: Progress) -> None:
    free_bytes = _free_bytes()
    steps = int(free_bytes * SHARE) // STEP_BYTES
    if not steps:
        return
    progress(f"writing to {steps * STEP_BYTES // 1_000_000:,} MB of free memory once")
    filling = b"\1" * STEP_BYTES
    with mmap(-1, steps * STEP_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS) as memory:
        for step in range(steps):
            memory[step * STEP_BYTES : (step + 1) * STEP_BYTES] = filling


def _free_bytes() -> int:
    """What nobody uses, not even the page cache; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:")), 0)
