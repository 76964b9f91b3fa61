"""Which tests share a worker of `make test`, and in which order they are handed out.

Deterministic tests come first, file by file. Real ones follow when no more of the others are left to begin: first the
lanes, each of which is one worker's, then files that mostly wait, then the rest.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.repeats import RealTests

LANES = (
    ("spark/faults", "spark/cluster", "spark/sink", "spark/table", "spark/test_page.py"),
    (
        "spark/audit",
        "spark/examples",
        "spark/pipeline",
        "spark/source",
        "spark/tools",
        "cli/test_run.py",
        "faults/test_demo.py",
    ),
    (
        "conformance",
        "processing",
        "producer",
        "admin",
        "cli/test_groups.py",
        "cli/test_produce_consume.py",
        "cli/test_transactions.py",
        "client/membership/test_mixed_groups.py",
        "coordinator/consumer/test_as_kafka.py",
        "faults/test_producer_matrix.py",
        "testing/test_outside.py",
    ),
    (
        "interop",
        "consumer",
        "faults/test_producer_and_brokers.py",
        "faults/test_spool_kill.py",
        "faults_tool/test_producers.py",
        "once/test_with_brokers.py",
    ),
)
"""Each is one worker's: two whose tests start Spark again and again, and two whose tests share an Apache Kafka, which
takes its time to start as well."""
SLOW_ROOMS = ("faults", "hostile")
"""Tests that mostly wait: they begin before the quick ones."""


@functools.cache
def place_of(inside: Path) -> int:
    """The lane of a file (its path inside of the tests), or where it stands behind the lanes."""
    for number, lane in enumerate(LANES):
        if any(inside.is_relative_to(place) for place in lane):
            return number
    return len(LANES) + (inside.parts[0] not in SLOW_ROOMS)


def order_of(inside: Path, is_real: bool) -> int:
    return 1 + place_of(inside) if is_real else 0


class Lanes(LoadFileScheduling):  # type: ignore[misc]
    """Work is handed out in the order of the collection; `real` says which tests are real."""

    def __init__(self, config: pytest.Config, log: Any, root: str, real: RealTests) -> None:
        super().__init__(config, log)
        self._root = root
        self._real = real
        self._scopes: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        scope = self._scopes.get(nodeid)
        if scope is None:
            scope = self._scopes[nodeid] = self._scope_of(nodeid)
        return scope

    def _scope_of(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if nodeid not in self._real:
            return path
        place = place_of(Path(path).relative_to(self._root))
        return f"lane {place}" if place < len(LANES) else f"{path}, real"

    def remove_node(self, node: Any) -> str | None:
        """A test in which a worker died is not handed to the next worker, to kill that as well."""
        workload = self.assigned_work[node]
        unfinished = [(unit, nodeid) for unit in workload.values() for nodeid, done in unit.items() if not done]
        if not unfinished:
            self.assigned_work.pop(node)
            return None
        unit, died_in = unfinished[0]
        unit[died_in] = True
        for scope, left in workload.items():
            if not all(left.values()):
                self.workqueue[scope] = left
                self.workqueue.move_to_end(scope, last=False)
        self.assigned_work.pop(node)
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in
