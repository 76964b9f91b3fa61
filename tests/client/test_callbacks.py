"""Callbacks that would misunderstand what they are told are refused in one sentence, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from oncelog.client.callbacks import DeliveryCallbacks, check_callback, check_listener, kind_of, swapped


class Shop:
    def delivered(self, metadata: Any, error: Any) -> None: ...

    def acked(self, err: Any, msg: Any) -> None: ...

    def __call__(self, err: Any, msg: Any) -> None: ...


class Counter:
    def __call__(self, metadata: Any, error: Any) -> None: ...


def told(metadata: Any, error: Any) -> None: ...


def acked(err: Any, msg: Any) -> None: ...


def acked_of(order: str, err: Any, msg: Any) -> None: ...


def told_of(order: str, metadata: Any, error: Any) -> None: ...


RIGHT = [
    None,
    print,
    told,
    Shop().delivered,
    Counter(),
    partial(told_of, "order-7"),
    lambda metadata, error: None,
    lambda record, exc: None,
    lambda msg, err: None,
    lambda a, b: None,
    lambda *outcome: None,
    lambda metadata, error, tries=3: None,
    Mock(),
    [].append,
]
TURNED_ROUND = [
    acked,
    Shop().acked,
    Shop(),
    partial(acked_of, "order-7"),
    lambda err, msg: None,
    lambda error, message: None,
    lambda e, m: None,
    lambda _, msg: None,
    lambda err, *others: None,
]


@pytest.mark.parametrize("callback", RIGHT, ids=range(len(RIGHT)))
def test_what_can_be_called(callback: Any) -> None:
    check_callback(callback, "on_delivery", "metadata")


@pytest.mark.parametrize("callback", TURNED_ROUND, ids=range(len(TURNED_ROUND)))
def test_those_of_confluent_kafka_are_refused(callback: Any) -> None:
    with pytest.raises(TypeError) as refused:
        check_callback(callback, "on_delivery", "metadata")
    said = str(refused.value)
    assert said.startswith("on_delivery is called as (metadata, error), but this one takes (")
    assert said.endswith("it would take every success for an error; swap its parameters")


@pytest.mark.parametrize("callback", [lambda: None, lambda metadata: None, lambda a, b, c: None], ids=["0", "1", "3"])
def test_those_that_take_another_number_are_refused(callback: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"on_delivery is called as \(metadata, error\), but this one takes \("):
        check_callback(callback, "on_delivery", "metadata")


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match=r"on_delivery is a function of \(metadata, error\), not 5"):
        check_callback(5, "on_delivery", "metadata")
    with pytest.raises(TypeError, match=r"on_assigned is a function of \(consumer, partitions\), not 5"):
        check_listener(5, "on_assigned")


def test_commits_have_the_same_trap() -> None:
    with pytest.raises(
        TypeError, match=r"on_commit is called as \(offsets, error\), but this one takes \(err, partitions\)"
    ):
        check_callback(lambda err, partitions: None, "on_commit", "offsets")


def test_listeners() -> None:
    check_listener(None, "on_assigned")
    check_listener(lambda consumer, partitions: None, "on_assigned")
    with pytest.raises(TypeError, match=r"on_assigned is called as \(consumer, partitions\), but .* \(partitions\)"):
        check_listener(lambda partitions: None, "on_assigned")


class TestOfAProducer:
    def test_each_is_looked_into_once(self) -> None:
        callbacks = DeliveryCallbacks()
        for _ in range(3):
            callbacks.check(lambda metadata, error: None)
        assert len(callbacks._known) == 1

    def test_a_wrong_one_is_refused_every_time(self) -> None:
        callbacks = DeliveryCallbacks()
        for callback in (acked, acked, partial(acked_of, "order-7"), partial(acked_of, "order-8")):
            with pytest.raises(TypeError, match="the other way round"):
                callbacks.check(callback)

    def test_a_partial_is_as_good_as_its_function(self) -> None:
        callbacks = DeliveryCallbacks()
        callbacks.check(partial(told_of, "order-7"))
        with pytest.raises(TypeError, match="the other way round"):
            callbacks.check(partial(acked_of, "order-7"))

    def test_they_are_remembered_within_a_bound(self) -> None:
        callbacks = DeliveryCallbacks()
        for number in range(1_000):
            callbacks.check(eval(f"lambda metadata, error: {number}"))
        assert len(callbacks._known) <= 256


@pytest.mark.parametrize("callback", [*RIGHT, *TURNED_ROUND, 5], ids=range(len(RIGHT) + len(TURNED_ROUND) + 1))
def test_the_compiled_form_tells_the_same_kinds_apart(callback: Any) -> None:
    native = pytest.importorskip("oncelog.client._records")
    assert native.kind_of(callback) is kind_of(callback)


@pytest.mark.parametrize(
    "listener",
    [
        lambda partitions, consumer: None,
        lambda partitions, _: None,
        lambda assigned, c: None,
        lambda tps, consumer: None,
    ],
)
def test_a_listener_that_is_turned_round_is_refused(listener: Callable[..., Any]) -> None:
    for name in ("on_assigned", "on_revoked", "on_lost"):
        with pytest.raises(TypeError, match=rf"^{name} is called as \(consumer, partitions\).*the other way round"):
            check_listener(listener, name)


@pytest.mark.parametrize(
    "listener", [lambda consumer, partitions: None, lambda c, p: None, lambda _, partitions: None, lambda *any: None]
)
def test_a_listener_that_may_be_right_is_taken(listener: Callable[..., Any]) -> None:
    check_listener(listener, "on_assigned")


def test_names_that_are_not_known_say_nothing() -> None:
    assert swapped(lambda record, connection: None, ("connection", "record")) == ("record", "connection")
    assert swapped(lambda message, db: None, ("connection", "record")) is not None
    for right in (lambda conn, msg: None, lambda a, b: None, lambda connection, event: None, lambda row: None):
        assert swapped(right, ("connection", "record")) is None
    assert swapped(lambda record: None, ("records",)) is None
