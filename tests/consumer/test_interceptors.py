from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.consumer.interceptors import LOG_EVERY, ConsumerInterceptor, InterceptorChain
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TimestampType, TopicPartition

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7)}


def records(*values: Any) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("t", 0, offset, 1, TimestampType.CREATE_TIME, None, value) for offset, value in enumerate(values)
    ]


class Doubling(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record.replace(value=2 * record.value) for record in records]


class Witness:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.seen.append(offsets)


class Failing:
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise KeyError("broken")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise KeyError("broken")


def test_each_sees_what_the_one_before_it_returned() -> None:
    class Dropping:
        def on_consume(self, records: list[ConsumerRecord]) -> tuple[ConsumerRecord, ...]:
            return tuple(record for record in records if record.value != 4)

    chain = InterceptorChain([Doubling, Dropping()])
    assert [record.value for record in chain.on_consume(records(1, 2, 3))] == [2, 6]


def test_without_interceptors_records_pass_as_they_are() -> None:
    taken = records(1)
    assert InterceptorChain(()).on_consume(taken) is taken
    assert InterceptorChain([Witness()]).on_consume(taken) is taken
    InterceptorChain([Doubling()]).on_commit(OFFSETS)


def test_nobody_is_asked_about_no_records() -> None:
    assert InterceptorChain([Failing()]).on_consume([]) == []


def test_one_that_raises_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    witness = Witness()
    chain = InterceptorChain([Failing(), Doubling(), witness])
    with caplog.at_level(logging.WARNING):
        assert [record.value for record in chain.on_consume(records(1))] == [2]
        chain.on_commit(OFFSETS)
    assert witness.seen == [OFFSETS]
    assert len(caplog.records) == 1
    assert "Failing.on_consume" in caplog.text
    assert "passed over" in caplog.text


def test_a_broken_one_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    chain = InterceptorChain([Failing()])
    with caplog.at_level(logging.WARNING):
        for _ in range(LOG_EVERY + 1):
            chain.on_commit(OFFSETS)
    assert len(caplog.records) == 2
    assert f"failure {LOG_EVERY + 1}" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("returned", [None, [b"bytes"], 7])
def test_what_are_no_records_is_refused(caplog: pytest.LogCaptureFixture, returned: Any) -> None:
    class Wrong:
        def on_consume(self, records: list[ConsumerRecord]) -> Any:
            return returned

    taken = records(1)
    with caplog.at_level(logging.WARNING):
        assert InterceptorChain([Wrong()]).on_consume(taken) == taken
    assert "TypeError" in caplog.text
