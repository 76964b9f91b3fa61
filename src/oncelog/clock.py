"""The one place that reads the time of day. Shells call it and pass `wall_ms` down; cores never import this.

What waits or expires does not count by it, since anybody may set it: `broker/steady_time.py`.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
