"""Reads a broker's Prometheus page."""

from __future__ import annotations

import re
import urllib.request


def duplicates_recognised(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(r"^oncelog_duplicates_recognised_total (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))
