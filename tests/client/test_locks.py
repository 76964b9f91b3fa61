"""The accumulator's lock: one holder at a time, and nobody is left waiting, whoever loses the interpreter meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client.locks import as_quick_lock, new_lock
from tests.support.patience import PATIENCE_S, eventually

THREADS, TURNS = 8, 300


@pytest.fixture(params=["quick", "plain"])
def lock(request: pytest.FixtureRequest) -> Iterator[Any]:
    lock = new_lock(threading.Lock) if request.param == "quick" else threading.Lock()
    assert (as_quick_lock(lock) is not None) == (request.param == "quick"), "run `make native`"
    return lock


def test_one_holder_at_a_time_and_everybody_in_the_end(lock: Any) -> None:
    holders, done = [], []

    def work() -> None:
        for turn in range(TURNS):
            lock.acquire()
            holders.append(threading.get_ident())
            if turn % 3 == 0:
                time.sleep(0)  # others run, and find it taken
            assert holders == [threading.get_ident()]
            holders.clear()
            lock.release()
        done.append(True)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(done) == THREADS


def test_all_that_wait_come_through_one_by_one(lock: Any) -> None:
    waiting, through = [], []

    def wait() -> None:
        waiting.append(True)
        lock.acquire()
        through.append(True)
        lock.release()

    lock.acquire()
    threads = [threading.Thread(target=wait, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(waiting) == THREADS, "all are on the way")
    assert through == []
    lock.release()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(through) == THREADS
    lock.acquire()  # and it is free again
    lock.release()
