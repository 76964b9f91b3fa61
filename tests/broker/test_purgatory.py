from __future__ import annotations

from oncelog.broker.purgatory import FetchPurgatory, WaitingFetch
from oncelog.types import TopicPartition
from tests.broker.support import watching

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)


def parked(purgatory: FetchPurgatory, partitions: list[TopicPartition], missing: int) -> list[str]:
    woken: list[str] = []
    purgatory.park(WaitingFetch(watching(purgatory, *partitions), missing, lambda: woken.append("woken")))
    return woken


def test_a_fetch_wakes_when_its_partitions_together_gave_enough() -> None:
    purgatory = FetchPurgatory()
    woken = parked(purgatory, [ORDERS, PAYMENTS], missing=100)
    purgatory.appended(ORDERS, 60)
    assert woken == []
    purgatory.appended(PAYMENTS, 40)
    assert woken == ["woken"]


def test_a_woken_fetch_is_forgotten_everywhere() -> None:
    purgatory = FetchPurgatory()
    woken = parked(purgatory, [ORDERS, PAYMENTS], missing=1)
    purgatory.appended(ORDERS, 1)
    purgatory.appended(PAYMENTS, 1)
    assert woken == ["woken"]
    assert len(purgatory) == 0


def test_other_partitions_do_not_wake_it() -> None:
    purgatory = FetchPurgatory()
    woken = parked(purgatory, [ORDERS], missing=1)
    purgatory.appended(PAYMENTS, 1_000_000)
    assert woken == []
    assert len(purgatory) == 1


def test_a_changed_partition_wakes_whoever_waits_for_it() -> None:
    purgatory = FetchPurgatory()
    woken = parked(purgatory, [ORDERS], missing=1_000_000)
    purgatory.changed(ORDERS)
    assert woken == ["woken"]


def test_an_abandoned_fetch_is_never_woken() -> None:
    purgatory = FetchPurgatory()
    woken: list[str] = []
    fetch = WaitingFetch(watching(purgatory, ORDERS), 1, lambda: woken.append("woken"))
    purgatory.park(fetch)
    purgatory.remove(fetch)
    purgatory.remove(fetch)
    purgatory.appended(ORDERS, 10)
    assert woken == []


def test_waking_one_may_park_it_again_at_once() -> None:
    purgatory = FetchPurgatory()
    woken: list[int] = []

    def park_again() -> None:
        woken.append(len(woken))
        if len(woken) < 3:
            purgatory.park(WaitingFetch(watching(purgatory, ORDERS), 1, park_again))

    purgatory.park(WaitingFetch(watching(purgatory, ORDERS), 1, park_again))
    purgatory.appended(ORDERS, 1)
    purgatory.appended(ORDERS, 1)
    assert woken == [0, 1]


def test_a_fetch_is_woken_once_even_if_waking_another_wakes_it_too() -> None:
    purgatory = FetchPurgatory()
    woken: list[str] = []

    def append_more() -> None:
        woken.append("first")
        purgatory.appended(ORDERS, 1)

    purgatory.park(WaitingFetch(watching(purgatory, ORDERS), 1, append_more))
    purgatory.park(WaitingFetch(watching(purgatory, ORDERS), 1, lambda: woken.append("second")))
    purgatory.appended(ORDERS, 1)
    assert woken == ["first", "second"]


def test_a_committed_reader_does_not_count_what_is_hidden_until_it_is_released() -> None:
    purgatory = FetchPurgatory()
    woken: list[str] = []
    hidden = {ORDERS}
    purgatory.park(
        WaitingFetch(watching(purgatory, ORDERS, PAYMENTS), 10, lambda: woken.append("committed"), hidden.__contains__)
    )
    purgatory.park(WaitingFetch(watching(purgatory, ORDERS), 1_000, lambda: woken.append("any")))
    purgatory.appended(ORDERS, 900)
    purgatory.appended(PAYMENTS, 9)
    assert woken == []
    purgatory.released(ORDERS)
    assert woken == ["committed"]
    purgatory.appended(ORDERS, 100)
    assert woken == ["committed", "any"]


def test_what_changed_is_due_whether_anybody_waits_or_not() -> None:
    purgatory = FetchPurgatory()
    view = watching(purgatory, ORDERS, PAYMENTS)
    assert view.to_read() == []
    for happens in (lambda: purgatory.appended(ORDERS, 1), lambda: purgatory.noted(ORDERS)):
        happens()
        (cached,) = view.to_read()
        assert cached.watched == ORDERS
        view.at_end(cached, 1, 0)
    purgatory.released(ORDERS)
    purgatory.changed(PAYMENTS)
    assert [cached.watched for cached in view.to_read()] == [ORDERS, PAYMENTS]


def test_what_is_noted_wakes_nobody() -> None:
    purgatory = FetchPurgatory()
    woken = parked(purgatory, [ORDERS], missing=1)
    purgatory.noted(ORDERS)
    assert woken == []
    purgatory.changed(ORDERS)
    assert woken == ["woken"]


def test_a_view_that_is_closed_leaves_nothing_behind() -> None:
    purgatory = FetchPurgatory()
    view, other = watching(purgatory, ORDERS, PAYMENTS), watching(purgatory, ORDERS)
    assert purgatory.watched_partitions == 3
    view.forget(next(iter(view)).topic, ORDERS.partition)
    assert purgatory.watched_partitions == 2
    view.close()
    other.close()
    assert (purgatory.watched_partitions, purgatory._watching) == (0, {})
    purgatory.changed(ORDERS)
    assert view.to_read() == other.to_read() == []
