"""A batch that is refused for some of its records: the answer names them in Kafka's words, and every record's future,
callback or row is told whether it is at fault."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import oncelog
from oncelog.errors import InvalidRecord, InvalidTimestamp
from tests.support.batches import NONE, ZSTD, Record, make_batch, read_records
from tests.support.compare import assert_equal
from tests.support.patience import PATIENCE_S
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic, fetch, produce

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

COMPACTED = {"cleanup.policy": "compact"}
RECENT_ONLY = {"message.timestamp.before.max.ms": "100000"}
KEYED, KEYLESS = Record(b"k"), Record()
EARLY, LATE = -1_000_000, 10_000_000

CASES: dict[str, tuple[dict[str, str], list[Record]]] = {
    "one without a key": (COMPACTED, [KEYED, KEYLESS]),
    "more than the message names": (COMPACTED, [KEYLESS, KEYED, *[KEYLESS] * 4]),
    "very many": (COMPACTED, [KEYLESS] * 1_900),
    "one too late": ({}, [KEYED, KEYED._replace(timestamp_delta=LATE)]),
    "too early and too late": (RECENT_ONLY, [KEYED._replace(timestamp_delta=each) for each in (EARLY, 0, LATE)]),
    "the key is looked at first": (
        {**COMPACTED, **RECENT_ONLY},
        [KEYLESS._replace(timestamp_delta=EARLY), KEYED, KEYLESS],
    ),
    "a single timestamp decides about the code": (
        {**COMPACTED, **RECENT_ONLY},
        [KEYLESS, KEYED._replace(timestamp_delta=EARLY), KEYLESS],
    ),
    "the topic's clock": ({"message.timestamp.type": "LogAppendTime", **COMPACTED}, [KEYLESS, KEYED]),
}


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("case", CASES)
def test_records_at_fault_are_named(both_brokers: Brokers, new_topic: Topics, case: str, codec: int) -> None:
    configs, records = CASES[case]
    topic, now_ms = new_topic(), int(time.time() * 1000)
    answers = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            create_topic(client, topic, configs=configs)
            answer = produce(client, topic, make_batch(records, base_timestamp=now_ms, codec=codec), version=9)
            assert not read_records(fetch(client, topic, max_wait=0)["records"] or b"")
        assert answer["error_code"] in (InvalidRecord.code, InvalidTimestamp.code)
        assert answer["record_errors"]
        answers[kind] = _without_clock(answer)
    assert_equal(answers)


def _without_clock(answer: Message) -> Message:
    """All words but the range of timestamps, which moves; and where the log begins, which no client looks at."""
    words = {key: value for key, value in answer.items() if key != "log_start_offset"}
    words["record_errors"] = [
        (each["batch_index"], re.sub(r"\[-?\d+, \d+\]", "[from, to]", each["batch_index_error_message"]))
        for each in answer["record_errors"]
    ]
    return words


def test_older_versions_have_the_code_alone(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_topic(client, topic, configs=COMPACTED)
        answer = produce(client, topic, make_batch([KEYLESS]), version=7)
    assert answer["error_code"] == InvalidRecord.code


def _require_told(errors: list[Any], at_fault: set[int]) -> None:
    for index, error in enumerate(errors):
        if index in at_fault:
            assert isinstance(error, InvalidRecord), error
            assert "Compacted topic cannot accept message without key" in str(error)
        else:
            assert isinstance(error, oncelog.RefusedWithOthers), error
            assert not error.may_be_written
            assert isinstance(error.__cause__, InvalidRecord)


def _compacted(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.address) as client:
        create_topic(client, topic, configs=COMPACTED)


KEYS = [b"0", None, b"2", None, b"4"]
AT_FAULT = {1, 3}


def test_each_future_and_callback_says_why(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    _compacted(broker, topic)
    heard: list[Any] = []
    with oncelog.Producer(broker.bootstrap, linger_ms=60_000) as producer:
        futures = [
            producer.send(topic, b"v", key=key, on_delivery=lambda _, error: heard.append(error)) for key in KEYS
        ]
        producer.flush(PATIENCE_S)
        errors = [future.exception(PATIENCE_S) for future in futures]
        _require_told(errors, AT_FAULT)
        assert heard == errors
        with pytest.raises(oncelog.RefusedWithOthers):
            futures[0].result()
        again = [producer.send(topic, b"v", key=key) for key in KEYS if key is not None]
        producer.flush(PATIENCE_S)
        assert [future.result(PATIENCE_S).offset for future in again] == [0, 1, 2]


def test_a_single_one_has_the_batchs_own_error(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_topic(client, topic)
    late_ms = int(time.time() * 1000) + LATE
    with oncelog.Producer(broker.bootstrap, linger_ms=60_000) as producer:
        good, bad = producer.send(topic, b"v"), producer.send(topic, b"v", timestamp_ms=late_ms)
        producer.flush(PATIENCE_S)
        assert isinstance(good.exception(PATIENCE_S), oncelog.RefusedWithOthers)
        with pytest.raises(InvalidTimestamp, match=f"{topic}-0: Timestamp {late_ms} of message with offset 1"):
            bad.result(PATIENCE_S)


def test_each_awaited_send_says_why(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    _compacted(broker, topic)

    async def send() -> list[Any]:
        async with oncelog.AsyncProducer(broker.bootstrap, linger_ms=60_000) as producer:
            futures = [producer.send(topic, b"v", key=key) for key in KEYS]
            await producer.flush()
            return await asyncio.gather(*futures, return_exceptions=True)

    _require_told(asyncio.run(send()), AT_FAULT)


def test_each_row_of_a_table_says_why(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    _compacted(broker, topic)
    with oncelog.Producer(broker.bootstrap, linger_ms=60_000) as producer:
        result = producer.send_table(topic, pa.table({"key": KEYS, "value": [b"v"] * 5}))
        producer.flush(PATIENCE_S)
        failed = result.exception(PATIENCE_S)
    assert isinstance(failed, oncelog.TableFailed)
    errors = {row: failure.error for failure in failed.failures for rows in failure.rows for row in rows}
    _require_told([errors[row] for row in range(5)], AT_FAULT)


def test_a_transactional_spool_sends_the_others_again(broker: BrokerProcess, new_topic: Topics, tmp_path: Path) -> None:
    """Its transaction was aborted, so nothing of the batch is stored: only those at fault are left out of the next."""
    topic = new_topic()
    _compacted(broker, topic)
    settings: dict[str, Any] = {"transactional_id": f"spooling to {topic}", "linger_ms": 200}
    with oncelog.Producer(broker.bootstrap, spool_dir=tmp_path, **settings) as producer:
        futures = [producer.send(topic, b"%d" % index, key=key) for index, key in enumerate(KEYS)]
        errors = [future.exception(PATIENCE_S) for future in futures]
    assert [isinstance(error, InvalidRecord) for error in errors] == [index in AT_FAULT for index in range(5)]
    assert [error for index, error in enumerate(errors) if index not in AT_FAULT] == [None] * 3
    with oncelog.Consumer(broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([oncelog.TopicPartition(topic, 0)])
        values: list[bytes] = []
        while len(values) < 3:
            values += [record.value for record in consumer.poll(PATIENCE_S)]
    assert values == [b"0", b"2", b"4"]
