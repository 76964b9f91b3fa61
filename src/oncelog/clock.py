"""The one place that reads the wall clock. Shells call it and pass `now_ms` down; cores never import this."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
