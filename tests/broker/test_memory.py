"""What comes and goes leaves nothing in the broker's memory: as many bytes after N rounds as after 2 N."""

from __future__ import annotations

import gc
import itertools
import re
import tracemalloc
import urllib.request
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from oncelog.broker._allocator import use_one_arena
from oncelog.wire.primitives import uuid_from_bytes
from tests.broker.handlers.conftest import NOW_MS, Asking, open_broker
from tests.support.broker import OncelogBroker
from tests.support.raw import RawClient
from tests.support.requests import create_topic

ROUNDS = 40
NO_ID = UUID(int=0)
ARENA_BYTES = 64 * 1024 * 1024
"""What glibc reserves, at a multiple of its size, for the arena of a thread."""


def left_by_each(round_: Callable[[int], None]) -> float:
    """Bytes that a round leaves behind, once all has been used for the first time."""
    numbers = itertools.count()

    def after_rounds() -> int:
        for _ in range(ROUNDS):
            round_(next(numbers))
        uuid_from_bytes.cache_clear()  # it has a bound, which these rounds do not reach
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        after_rounds()
        return (-after_rounds() + after_rounds()) / ROUNDS
    finally:
        tracemalloc.stop()


def test_a_topic_that_was_deleted(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    ask = Asking(broker)

    def round_(number: int) -> None:
        name = f"churn-{number:06d}"
        ask.create(name, 2, retention_ms="1000")
        ask.append(name, 0, NOW_MS, producer_id=number, sequence=0)
        broker.metrics.appended(name, 100, 1)
        broker.logs.checkpoint()
        answer = ask("delete_topics", 6, topics=[{"name": name, "topic_id": NO_ID}])
        assert answer["responses"][0]["error_code"] == 0
        while broker.logs.retiring:
            broker.logs.retire_next(NOW_MS)
        for removal in broker.logs.removals_due(NOW_MS + 3_600_000):
            removal.run()

    assert left_by_each(round_) < 50
    broker.stop(NOW_MS)


def test_a_producer_that_was_forgotten(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, producer_id_expiration_ms="1000")
    ask = Asking(broker)
    ask.create("orders")

    def round_(number: int) -> None:
        ask("init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000)
        for sequence in range(5):
            ask.append("orders", 0, NOW_MS, producer_id=number, sequence=sequence)
        assert broker.logs.expire_producers(NOW_MS + 1_000) == 1

    assert left_by_each(round_) < 50
    broker.stop(NOW_MS)


def test_threads_share_one_arena(tmp_path: Path) -> None:
    """A pool of threads opens the logs, and a thread makes the metrics page. By itself glibc gives each an arena."""
    assert use_one_arena(), "this C library is not glibc; leave this test out"
    broker = OncelogBroker(tmp_path, {"metrics.port": "0"})
    with broker, RawClient(broker.address) as client:
        create_topic(client, "orders", partitions=8)
    with broker:
        (port,) = set(re.findall(r"metrics at http://[^:]+:(\d+)/metrics", broker.log.rpartition("stopping")[2]))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            assert b"kafka_" in page.read()
        maps = Path(f"/proc/{broker.pid}/maps").read_text()
    reserved = re.findall(r"^(\w+)-(\w+) ---p 0+ 00:00 0\b", maps, re.MULTILINE)
    ranges = [(int(start, 16), int(end, 16)) for start, end in reserved]
    arenas = [end for start, end in ranges if end % ARENA_BYTES == 0 and end - start > ARENA_BYTES // 2]
    assert arenas == []
