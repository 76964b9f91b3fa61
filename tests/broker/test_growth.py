"""Thousands of partitions are created by a real client while others are served; how long these waited.

How long is printed (`-s`), and nothing is asserted of it: it depends on what else the machine does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import OncelogBroker
from tests.support.raw import RawClient

INTERVAL_S = 0.002


class Probe:
    """Another client, which asks for little again and again; how long its slowest answer took."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.asked = 0
        self.longest_ms = 0.0

    def _run(self) -> None:
        with RawClient(self._address) as client:
            while not self._ended.wait(INTERVAL_S):
                began_s = time.perf_counter()
                client.request("metadata", 12, {"topics": [{"name": "one"}]})
                self.longest_ms = max(self.longest_ms, (time.perf_counter() - began_s) * 1000)
                self.asked += 1

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OncelogBroker]:
    folder: Path = tmp_path_factory.mktemp("growth")
    with OncelogBroker(folder) as started:
        yield started


@pytest.mark.parametrize(("topics", "partitions", "requests"), [(1, 5000, 1), (50, 100, 1), (5000, 1, 5)])
def test_five_thousand_partitions_are_created_while_others_are_served(
    broker: OncelogBroker, topics: int, partitions: int, requests: int
) -> None:
    admin = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    names = [f"new-{topics}-{number}" for number in range(topics)]
    share = topics // requests
    with Probe(broker.address) as probe:
        for start in range(0, topics, share):
            wanted = [NewTopic(name, partitions, 1) for name in names[start : start + share]]
            for future in admin.create_topics(wanted, request_timeout=120).values():
                future.result(120)
    print(f"\n{topics} x {partitions}: {probe.asked} answers meanwhile, the slowest after {probe.longest_ms:.1f} ms")
    known = admin.list_topics(timeout=60).topics
    assert {len(known[name].partitions) for name in names} == {partitions}
