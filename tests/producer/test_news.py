"""Waiting for the sender: woken by news, bounded by time, and refused where it would never end."""

from __future__ import annotations

import threading
import time

import pytest

from oncelog.client.producer_errors import ProducerClosed
from oncelog.producer.news import News
from tests.support.patience import PATIENCE_S


def test_what_is_there_already_is_not_waited_for() -> None:
    assert News().wait_for(lambda: 5, 0) == 5


@pytest.mark.real
def test_nothing_comes_after_the_timeout() -> None:
    began = time.monotonic()
    assert News().wait_for(lambda: None, 0.05) is None
    assert time.monotonic() - began >= 0.05


def test_every_waiter_is_woken_by_news() -> None:
    news = News()
    arrived: list[int] = []
    results: list[int | None] = []

    def wait() -> None:
        results.append(news.wait_for(lambda: arrived[0] if arrived else None, PATIENCE_S))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    arrived.append(7)
    deadline = time.monotonic() + PATIENCE_S
    while len(results) < 4 and time.monotonic() < deadline:
        news.tell()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == [7] * 4


def test_what_an_attempt_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        News().wait_for(lambda: 1 // 0, PATIENCE_S)


def test_the_sender_does_not_wait_for_itself() -> None:
    news = News()
    news.thread = threading.current_thread()
    with pytest.raises(RuntimeError, match="waiting for a result in a delivery callback would wait for itself"):
        news.new_waiter()
    news.thread = threading.Thread()
    assert not news.new_waiter().is_set()


def test_a_forked_child_does_not_wait() -> None:
    news = News()
    news.disowned = ProducerClosed("forked")
    with pytest.raises(ProducerClosed, match="forked"):
        news.new_waiter()


def test_who_waits_again_has_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [100.0], []

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        waited.append(timeout)
        now[0] += 3
        return True

    monkeypatch.setattr(threading.Event, "wait", wait)
    monkeypatch.setattr("oncelog.producer.news.time.monotonic", lambda: now[0])
    waiter = News().new_waiter()
    for _ in range(3):
        waiter.wait(5)
        waiter.clear()
    assert waited == [5, 2, 0]
