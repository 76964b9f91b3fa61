"""What a task reads, on real brokers, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog.client.blocking import BrokersUnreachable
from oncelog.records.arrow import table_of
from oncelog.spark.source import reading
from oncelog.spark.source.cluster import Cluster
from oncelog.spark.source.columns import MAX_ROWS
from oncelog.spark.source.losses import DataLoss, LogBounds, SkipTo, Wait, stalled
from oncelog.spark.source.pool import POOL
from oncelog.spark.source.ranges import OffsetRange
from oncelog.spark.source.reading import ReadTimedOut, read_range
from oncelog.types import TopicPartition
from tests.spark.source.support import Transactions, rows_of, send, settings_for, values_of
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers

SMALL = {"kafka.max.partition.fetch.bytes": "1000"}
"""So that little is there before it is asked for."""


@pytest.fixture(autouse=True)
def pool() -> Iterator[None]:
    yield
    POOL.close()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[oncelog.Admin]:
    with oncelog.Admin(broker.bootstrap) as one:
        yield one


@pytest.fixture
def topic(admin: oncelog.Admin, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    admin.create_topic(name, partitions=1)
    return name


def test_a_range_ends_exactly_where_it_should(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, map(str, range(1000)))
    settings = settings_for(broker, topic)
    for start, end in ((0, 1000), (0, 1), (999, 1000), (17, 503), (5, 5)):
        rows = rows_of(settings, topic, start, end)
        assert [row["offset"] for row in rows] == list(range(start, end))
        assert values_of(rows) == [str(number).encode() for number in range(start, end)]


def test_transactions_show_what_was_committed_and_end_ranges_without_records(broker: BrokerProcess, topic: str) -> None:
    with Transactions(broker, topic) as transactions:
        transactions.write("abc", commit=True)  # 0-2, marker 3
        transactions.write("de", commit=False)  # 4-5, marker 6
        transactions.write("fg", commit=True)  # 7-8, marker 9
        transactions.write("hi", commit=False)  # 10-11, marker 12
    settings = settings_for(broker, topic)
    assert values_of(rows_of(settings, topic, 0, 13)) == [b"a", b"b", b"c", b"f", b"g"]
    assert rows_of(settings, topic, 3, 7) == []
    assert rows_of(settings, topic, 9, 13) == []
    assert values_of(rows_of(settings, topic, 4, 8)) == [b"f"]
    assert values_of(rows_of(settings, topic, 0, 8)) == [b"a", b"b", b"c", b"f"]
    everything = settings_for(broker, topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert b"".join(values_of(rows_of(everything, topic, 0, 13))) == b"abcdefghi"


def test_all_columns_are_there(broker: BrokerProcess, topic: str) -> None:
    with oncelog.Producer(broker.bootstrap) as producer:
        producer.send(topic, value=b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=1_700_000_000_123)
        producer.send(topic, value=None, key=None, timestamp_ms=1_700_000_000_124)
        producer.send(topic, value=b"", key=b"", timestamp_ms=1_700_000_000_125)
    rows = rows_of(settings_for(broker, topic, includeHeaders="true"), topic, 0, 3)
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b"v"), (None, None), (b"", b"")]
    assert [row["headers"] for row in rows] == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None, None]
    assert [int(row["timestamp"].timestamp() * 1000) for row in rows] == [1_700_000_000_123 + n for n in range(3)]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}


def test_the_type_of_timestamps_is_the_logs(
    broker: BrokerProcess, admin: oncelog.Admin, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    admin.create_topic(topic, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    send(broker, topic, "abc")
    assert {row["timestampType"] for row in rows_of(settings_for(broker, topic), topic, 0, 3)} == {1}


def test_batches_are_bounded_and_the_consumer_is_used_again(broker: BrokerProcess, topic: str) -> None:
    count = MAX_ROWS + 50_000
    send(broker, topic, (str(number) for number in range(count)))
    settings = settings_for(broker, topic)
    wanted = OffsetRange(TopicPartition(topic, 0), 0, count)
    sizes = [batch.num_rows for batch in read_range(settings, wanted)]
    assert sum(sizes) == count
    assert max(sizes) <= MAX_ROWS
    with POOL.consumer(settings.client) as first:
        pass
    unfinished = read_range(settings, wanted)
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    with POOL.consumer(settings.client) as second:
        assert second is first
    with pytest.raises(KeyError), POOL.consumer(settings.client):
        raise KeyError
    with POOL.consumer(settings.client) as third:
        assert third is not first


def test_removed_records_fail_the_task_unless_told_otherwise(
    broker: BrokerProcess, admin: oncelog.Admin, topic: str
) -> None:
    send(broker, topic, map(str, range(100)))
    admin.delete_records({TopicPartition(topic, 0): 40})
    with pytest.raises(DataLoss, match=f"offsets 10 to 40 of partition {topic}-0 were removed"):
        rows_of(settings_for(broker, topic), topic, 10, 90)
    lenient = settings_for(broker, topic, failOnDataLoss="false")
    assert [row["offset"] for row in rows_of(lenient, topic, 10, 90)] == list(range(40, 90))
    assert rows_of(lenient, topic, 10, 30) == []
    assert len(rows_of(settings_for(broker, topic), topic, 40, 90)) == 50


def test_a_topic_that_is_gone_fails_the_task_unless_told_otherwise(
    broker: BrokerProcess, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STALL_S", 0.1)
    topic = new_topic()
    with pytest.raises(DataLoss, match="was deleted"):
        rows_of(settings_for(broker, topic), topic, 0, 10)
    assert rows_of(settings_for(broker, topic, failOnDataLoss="false"), topic, 0, 10) == []


def test_a_log_that_ends_too_early_is_waited_for_and_then_a_loss(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, passed_s = 0, 0.0

    def watched(wanted: OffsetRange, position: int, log: LogBounds | None, *, is_patient: bool) -> Wait | SkipTo:
        """Time is up as soon as the reader waits at the end of the log, and never before it is there."""
        nonlocal waits, passed_s
        verdict = stalled(wanted, position, log, is_patient=is_patient)
        if verdict == Wait() and position >= 10:
            waits += 1
            passed_s += 1_000_000.0
        return verdict

    monkeypatch.setattr(reading, "STALL_S", 0.1)
    monkeypatch.setattr(reading, "stalled", watched)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, sleep=time.sleep)
    monkeypatch.setattr(reading, "time", clock)
    send(broker, topic, map(str, range(10)))
    patient = {"kafkaConsumer.pollTimeoutMs": "600000"}
    for start in (5, 15):
        with pytest.raises(DataLoss, match="ends at offset 10"):
            rows_of(settings_for(broker, topic, **patient), topic, start, 20)
    lenient = settings_for(broker, topic, failOnDataLoss="false", **patient)
    assert [row["offset"] for row in rows_of(lenient, topic, 5, 20)] == list(range(5, 10))
    assert waits == 3


def test_records_of_a_silent_broker_are_not_skipped(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its log ends too early, and losses were allowed."""
    monkeypatch.setattr(reading, "STALL_S", 0.1)
    monkeypatch.setattr(oncelog.Consumer, "poll", lambda *_, **__: [])
    send(broker, topic, map(str, range(10)))
    hasty = settings_for(broker, topic, failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "300"})
    with pytest.raises(ReadTimedOut, match=rf"nothing came from {topic}-0 at offset 5"):
        rows_of(hasty, topic, 5, 20)


def test_a_broker_that_stays_silent_is_named(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STALL_S", 0.1)
    monkeypatch.setattr(oncelog.Consumer, "poll", lambda *_, **__: [])
    send(broker, topic, map(str, range(10)))
    with pytest.raises(ReadTimedOut, match=rf"nothing came from {topic}-0 at offset 3"):
        rows_of(settings_for(broker, topic, **{"kafkaConsumer.pollTimeoutMs": "300"}), topic, 3, 10)


def test_a_slow_query_is_not_taken_for_a_silent_broker(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0
    read_table = oncelog.Consumer.read_table
    late = iter([table_of([])])

    def late_table(self: oncelog.Consumer, timeout: float, **limits: Any) -> Any:
        table = next(late, None)
        return read_table(self, timeout, **limits) if table is None else table

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s, sleep=time.sleep)
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(oncelog.Consumer, "read_table", late_table)
    send(broker, topic, map(str, range(100)))
    batches = read_range(settings_for(broker, topic), OffsetRange(TopicPartition(topic, 0), 0, 100))
    rows = next(batches).num_rows
    passed_s = 1_000_000.0
    assert rows + sum(batch.num_rows for batch in batches) == 100


def test_a_broker_that_dies_and_comes_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OncelogBroker(tmp_path) as own:
        looks: list[str] = []

        class Looking(Cluster):
            def log_bounds(self, partition: TopicPartition) -> LogBounds | None:
                try:
                    return super().log_bounds(partition)
                except BrokersUnreachable:
                    looks.append(str(partition))
                    own.start()
                    raise

        monkeypatch.setattr(reading, "STALL_S", 0.1)
        monkeypatch.setattr(reading, "Cluster", Looking)
        with oncelog.Admin(own.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        for _ in range(20):
            send(own, "t", map(str, range(100)))
        batches = read_range(settings_for(own, "t", **SMALL), OffsetRange(TopicPartition("t", 0), 0, 2000))
        rows = next(batches).num_rows
        own.kill()
        assert rows + sum(batch.num_rows for batch in batches) == 2000
        assert looks == ["t-0"]
        POOL.close()
