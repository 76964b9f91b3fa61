"""Members of one group, in one process: how long a rebalance takes until every partition has its reader again."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka

MEMBERS = 10
PATIENCE_S = 120.0
POLL_S = 0.05


class Member:
    """A librdkafka consumer with a thread that polls."""

    def __init__(self, bootstrap: str, topic: str, group: str, changed: threading.Condition) -> None:
        self.partitions: set[int] = set()
        self._changed = changed
        self._is_leaving = False
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "range",
                "heartbeat.interval.ms": 100,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._is_leaving = True
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._is_leaving:
            self._consumer.poll(POLL_S)
        self._consumer.close()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self._own({partition.partition for partition in partitions})

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._own(set())

    def _own(self, partitions: set[int]) -> None:
        with self._changed:
            self.partitions = partitions
            self._changed.notify_all()


def rebalances_s(bootstrap: str, topic: str, partitions: int, group: str, rounds: int) -> list[float]:
    changed = threading.Condition()
    members = [Member(bootstrap, topic, group, changed) for _ in range(MEMBERS)]
    await_shared(members, partitions, changed)
    durations = []
    for _ in range(rounds):
        members.pop(0).leave()
        await_shared(members, partitions, changed)
        begun = time.perf_counter()
        members.append(Member(bootstrap, topic, group, changed))
        await_shared(members, partitions, changed)
        durations.append(time.perf_counter() - begun)
    for member in members:
        member.leave()
    return durations


def await_shared(members: list[Member], partitions: int, changed: threading.Condition) -> None:
    """Until every member has its share, and every partition one reader."""

    def is_shared() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        return sorted(owned) == list(range(partitions)) and all(member.partitions for member in members)

    with changed:
        assert changed.wait_for(is_shared, PATIENCE_S), [sorted(member.partitions) for member in members]
