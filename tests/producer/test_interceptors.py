from __future__ import annotations

import logging
from typing import Any

import pytest

from oncelog.client.records import ProducerRecord, RecordMetadata
from oncelog.producer.interceptors import LOG_EVERY, Interceptor, InterceptorChain

RECORD = ProducerRecord("orders", value="v")
STORED = RecordMetadata("orders", 0, 7, 1_000)


class Marking(Interceptor):
    def __init__(self, mark: str = "x") -> None:
        self.mark = mark
        self.seen: list[tuple[RecordMetadata | None, Exception | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.seen.append((metadata, error))


class Broken:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError("on_send is broken")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise ZeroDivisionError("on_acknowledgement is broken")


class Forgetful:
    def on_send(self, record: ProducerRecord) -> None:
        """Forgets to return the record."""


def test_an_empty_chain_is_not_needed() -> None:
    chain = InterceptorChain(())
    assert not chain.is_needed
    assert chain.on_send(RECORD) is RECORD
    assert InterceptorChain([Interceptor()]).is_needed


def test_each_is_given_what_the_one_before_made() -> None:
    assert InterceptorChain([Marking("a"), Marking("b")]).on_send(RECORD).value == "vab"


def test_classes_are_made_into_objects() -> None:
    assert InterceptorChain([Marking]).on_send(RECORD).value == "vx"


@pytest.mark.parametrize("faulty", [Broken(), Forgetful()])
def test_one_that_fails_is_logged_and_passed_over(faulty: Any, caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Marking("a"), faulty, Marking("b")])
    assert chain.on_send(RECORD).value == "vab"
    (logged,) = caplog.records
    assert logged.levelno == logging.WARNING
    assert type(faulty).__name__ in logged.getMessage()
    assert logged.exc_info


def test_every_interceptor_learns_the_result() -> None:
    first, last, error = Marking(), Marking(), ValueError()
    chain = InterceptorChain([first, Broken(), last])
    chain.on_acknowledgement(STORED, None)
    chain.on_acknowledgement(None, error)
    assert first.seen == last.seen == [(STORED, None), (None, error)]


def test_the_callback_comes_after_the_interceptors() -> None:
    told: list[object] = []

    class Telling:
        def on_acknowledgement(self, metadata: object, error: object) -> None:
            told.append("interceptor")

    on_delivery = InterceptorChain([Telling(), Broken()]).acknowledging(lambda metadata, error: told.append(metadata))
    assert on_delivery is not None
    on_delivery(STORED, None)
    assert told == ["interceptor", STORED]


def test_without_a_callback_the_interceptors_are_told_all_the_same() -> None:
    marking = Marking()
    tell = InterceptorChain([marking]).acknowledging(None)
    assert tell is not None
    tell(STORED, None)
    assert marking.seen == [(STORED, None)]


def test_the_callback_is_left_alone_if_no_interceptor_wants_results() -> None:
    def on_delivery(metadata: object, error: object) -> None: ...

    chain = InterceptorChain([Forgetful()])
    assert chain.acknowledging(on_delivery) is on_delivery
    assert chain.acknowledging(None) is None


def test_a_broken_interceptor_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Broken()])
    for _ in range(2 * LOG_EVERY + 1):
        chain.on_send(RECORD)
    assert len(caplog.records) == 3
    assert f"failure {2 * LOG_EVERY + 1} " in caplog.records[-1].getMessage()


def test_an_acknowledgement_that_is_turned_round_is_refused() -> None:
    class Turned:
        def on_acknowledgement(self, error: Any, metadata: Any) -> None: ...

    with pytest.raises(TypeError, match=r"^on_acknowledgement is called as \(metadata, error\).*the other way round"):
        InterceptorChain([Turned])
