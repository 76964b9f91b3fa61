"""`Consumer` that assigns its partitions itself: what it reads, and from where on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client.consumer_errors import (
    NoOffsetForPartition,
    NotAssigned,
    PositionOutOfRange,
    RecordDeserializationError,
    SubscriptionConflict,
)
from oncelog.client.consumer_records import OffsetAndMetadata, OffsetAndTimestamp
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.interceptors import ConsumerInterceptor
from oncelog.errors import InvalidConfig, OffsetOutOfRange
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.consumer.scene import Topics, create, numbered, offsets_of, read, values_of, write
from tests.support.batches import CODECS, TIMESTAMP_MS, Record
from tests.support.confluent import make_producer, send
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

pytestmark = pytest.mark.on_both_brokers


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[Consumer]:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=100) as made:
        yield made


# --- records --------------------------------------------------------------------------------------------------------


def test_a_record_is_what_was_written(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    (partition,) = create(broker, topic := new_topic())
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("none", None))
    full = Record(b"key", b"value", headers, timestamp_delta=7)
    write(broker, topic, [full, Record(None, b""), Record(b"gone", None)])
    consumer.assign([partition])
    first, second, third = read(consumer, 3)
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert (first.key, first.value, tuple(first.headers)) == (b"key", b"value", headers)
    assert first.timestamp_ms == TIMESTAMP_MS + 7
    assert (second.key, second.value, tuple(second.headers), second.offset) == (None, b"", (), 1)
    assert (third.key, third.value, third.offset) == (b"gone", None, 2)
    assert consumer.position(partition) == 3


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(broker: BrokerProcess, new_topic: Topics, consumer: Consumer, codec: str) -> None:
    create(broker, topic := new_topic())
    written = write(broker, topic, [b"x" * 1_000, b"", *numbered(0, 500)], codec=CODECS[codec])
    consumer.assign([(topic, 0)])
    assert values_of(read(consumer, len(written))) == written


def test_records_larger_than_a_fetch(broker: BrokerProcess, new_topic: Topics) -> None:
    create(broker, topic := new_topic())
    written = [value for letter in b"abc" for value in write(broker, topic, [bytes([letter]) * 100_000])]
    limits = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000, "fetch_queue_max_bytes": 3_000}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", **limits) as consumer:
        consumer.assign([(topic, 0)])
        assert values_of(read(consumer, 3)) == written


def test_polls_return_no_more_than_they_are_asked_for(
    broker: BrokerProcess, new_topic: Topics, consumer: Consumer
) -> None:
    create(broker, topic := new_topic())
    written = write(broker, topic, numbered(0, 1_200))
    consumer.assign([(topic, 0)])
    seen: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < 50 and time.monotonic() < deadline:
        records = consumer.poll(1, max_records=7)
        assert len(records) <= 7
        seen += values_of(records)
    while len(seen) < 1_200 and time.monotonic() < deadline:
        records = consumer.poll(1)
        assert len(records) <= 500, "max.poll.records"
        seen += values_of(records)
    assert seen == written
    assert consumer.poll(0) == []
    with pytest.raises(ValueError, match="max_records is 1 or more"):
        consumer.poll(0, max_records=0)


def test_partitions_keep_their_order(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    partitions = create(broker, topic := new_topic(), 3)
    for round_ in range(4):
        for index in range(3):
            write(broker, topic, numbered(100 * round_, 100), index)
    consumer.assign(partitions)
    records = read(consumer, 1_200)
    for index in range(3):
        mine = [record for record in records if record.partition == index]
        assert offsets_of(mine) == list(range(400))


def test_iteration_goes_on_where_it_was_left(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    """After a break nothing is lost of what was fetched ahead, whichever way reading goes on."""
    create(broker, topic := new_topic())
    written = write(broker, topic, numbered(0, 100))
    consumer.assign([(topic, 0)])
    seen: list[Any] = []
    for record in consumer:
        seen.append(record.value)
        assert consumer.position((topic, 0)) == record.offset + 1
        if len(seen) == 10:
            break
    seen += values_of(consumer.poll(PATIENCE_S, max_records=10))
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 40:
            break
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 100:
            break
    assert seen == written
    assert consumer.position((topic, 0)) == 100


def test_iteration_waits_for_what_is_written_later(
    broker: BrokerProcess, new_topic: Topics, consumer: Consumer
) -> None:
    create(broker, topic := new_topic())
    consumer.assign([(topic, 0)])
    written = write(broker, topic, [b"1"])
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            break
        written += write(broker, topic, [b"%d" % (len(seen) + 1)])
    assert seen == written


def test_tables(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    create(broker, topic := new_topic(), 2)
    for index in range(2):
        write(broker, topic, [Record(b"k", value, (("h", b"v"),)) for value in numbered(0, 50)], index)
    consumer.assign([(topic, 0), (topic, 1)])
    tables: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(table.num_rows for table in tables) < 100 and time.monotonic() < deadline:
        tables.append(consumer.read_table(0.5, max_records=30))
        assert tables[-1].num_rows <= 30
    rows = [row for table in tables for row in table.to_pylist()]
    for index in range(2):
        mine = [row for row in rows if row["partition"] == index]
        assert [row["offset"] for row in mine] == list(range(50))
        assert [row["value"] for row in mine] == numbered(0, 50)
    assert consumer.read_table(0).num_rows == 0
    assert set(tables[0].column_names) >= {"key", "value", "topic", "partition", "offset", "timestamp", "headers"}


# --- positions ------------------------------------------------------------------------------------------------------


def test_seeking(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    (partition,) = create(broker, topic := new_topic())
    for step in range(5):
        write(broker, topic, numbered(10 * step, 10), base_timestamp=TIMESTAMP_MS + 1_000 * step)
    consumer.assign([partition])
    read(consumer, 50)
    consumer.seek(partition, 33)
    assert consumer.position(partition) == 33
    assert offsets_of(read(consumer, 17)) == list(range(33, 50))
    consumer.seek(partition, OffsetAndMetadata(48, "a note"))
    assert offsets_of(read(consumer, 2)) == [48, 49]
    consumer.seek_to_beginning()
    assert consumer.position(partition) == 0
    assert offsets_of(read(consumer, 50)) == list(range(50))
    consumer.seek_to_timestamp(TIMESTAMP_MS + 2_500, partition)
    assert offsets_of(read(consumer, 20)) == list(range(30, 50))
    consumer.seek_to_timestamp(TIMESTAMP_MS + 999_999)
    assert consumer.position(partition) == 50, "every record is older"
    consumer.seek(partition, 0)
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 50
    write(broker, topic, [b"new"])
    assert values_of(read(consumer, 1)) == [b"new"]


def test_seeking_while_iterating(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    partitions = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 100))
    consumer.assign(partitions)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 3:
            consumer.seek(partitions[0], 90)
        if len(seen) == 6:
            consumer.seek_to_beginning()
        if len(seen) == 8:
            break
    assert seen == [0, 1, 2, 90, 91, 92, 0, 1]


def test_what_cannot_be_sought(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    (partition,) = create(broker, topic := new_topic())
    with pytest.raises(NotAssigned, match=f"{topic}-0 is not assigned"):
        consumer.seek(partition, 0)
    with pytest.raises(SubscriptionConflict, match="nothing to read"):
        consumer.poll(0)
    consumer.assign([partition])
    with pytest.raises(ValueError, match="an offset is 0 or more"):
        consumer.seek(partition, -1)
    with pytest.raises(TypeError, match="a partition is"):
        consumer.seek(topic, 0)  # type: ignore[arg-type]
    for unowned in (consumer.position, consumer.lag, consumer.pause, consumer.resume, consumer.seek_to_end):
        with pytest.raises(NotAssigned):
            unowned((topic, 7))


def test_offsets_of_partitions_assigned_or_not(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    first, second = create(broker, topic := new_topic(), 2)
    for step in range(3):
        write(broker, topic, numbered(0, 10), base_timestamp=TIMESTAMP_MS + 1_000 * step)
    assert consumer.beginning_offsets(first, second) == {first: 0, second: 0}
    assert consumer.end_offsets(first, second) == {first: 30, second: 0}
    found = consumer.offsets_for_times({first: TIMESTAMP_MS + 500, second: TIMESTAMP_MS})
    assert found[second] is None
    assert found[first] == OffsetAndTimestamp(10, TIMESTAMP_MS + 1_000, 0)
    assert consumer.offsets_for_times({first: TIMESTAMP_MS + 999_999}) == {first: None}
    assert consumer.end_offsets() == {}
    with pytest.raises(ValueError, match="timestamp_ms is 0 or more"):
        consumer.offsets_for_times({first: -5})


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_lag_is_what_is_shown(broker: BrokerProcess, new_topic: Topics, level: str) -> None:
    """Markers are nobody's lag, aborted records not that of who does not read them: exact, as all was fetched."""
    (partition,) = create(broker, topic := new_topic())
    producer = make_producer(broker, transactional_id=f"writer of {topic}")
    producer.init_transactions(PATIENCE_S)
    fates = "cacaac"
    for fate in fates:
        producer.begin_transaction()
        send(producer, topic, [{"value": fate, "partition": 0}] * 3)
        end = producer.commit_transaction if fate == "c" else producer.abort_transaction
        end(PATIENCE_S)
    left = 3 * (fates.count("c") if level == "read_committed" else len(fates))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level=level) as consumer:
        consumer.assign([partition])
        while left:
            read = len(consumer.poll(PATIENCE_S, max_records=2))
            assert read > 0
            left -= read
            assert consumer.lag(partition) == left
            assert consumer.metrics()[f"records-lag{{{partition}}}"] == left


def test_lag(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 20))
    consumer.assign([partition])
    assert consumer.lag(partition) is None, "nothing was fetched yet"
    assert len(consumer.poll(PATIENCE_S, max_records=5)) == 5
    assert consumer.lag(partition) == 15
    read(consumer, 15)
    assert consumer.lag(partition) == 0


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H", "none"])
def test_where_reading_begins(broker: BrokerProcess, new_topic: Topics, policy: str) -> None:
    (partition,) = create(broker, topic := new_topic())
    now_ms = int(time.time() * 1_000)
    write(broker, topic, [b"yesterday"], base_timestamp=now_ms - 86_400_000)
    write(broker, topic, [b"just now"], base_timestamp=now_ms)
    with Consumer(broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([partition])
        if policy == "none":
            with pytest.raises(NoOffsetForPartition, match="seek"):
                consumer.position(partition)
            consumer.seek(partition, 1)
        begin = {"earliest": 0, "latest": 2}.get(policy, 1)
        assert consumer.position(partition) == begin
        write(broker, topic, [b"later"], base_timestamp=now_ms)
        expected = [b"yesterday", b"just now", b"later"][begin:]
        assert values_of(read(consumer, len(expected))) == expected


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_positions_outside_the_log(broker: BrokerProcess, new_topic: Topics, policy: str) -> None:
    (partition,) = create(broker, topic := new_topic())
    written = write(broker, topic, numbered(0, 10))
    with Consumer(broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000)
        if policy == "earliest":
            assert values_of(read(consumer, 10)) == written
            return
        if policy == "latest":
            eventually(lambda: not consumer.poll(0.05) and consumer.position(partition) == 10, "moved to the end")
            write(broker, topic, [b"new"])
            assert values_of(read(consumer, 1)) == [b"new"]
            return
        with pytest.raises(PositionOutOfRange, match=r"at 1000.*auto.offset.reset is none") as raised:
            consumer.poll(PATIENCE_S)
        assert isinstance(raised.value, OffsetOutOfRange)
        assert raised.value.positions == {partition: 1_000}
        assert consumer.poll(0.1) == [], "said once"
        consumer.seek(partition, 3)
        assert values_of(read(consumer, 7)) == written[3:]


def test_records_that_were_deleted_before_they_were_read(
    broker: BrokerProcess, new_topic: Topics, consumer: Consumer
) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    consumer.assign([partition])
    consumer.pause(partition)
    assert consumer.position(partition) == 0
    with RawClient(broker.address) as client:
        wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": 6}]}
        client.request("delete_records", 2, {"topics": [wanted], "timeout": 60_000})
    consumer.seek(partition, 2)
    consumer.resume(partition)
    assert offsets_of(read(consumer, 4)) == [6, 7, 8, 9]
    assert consumer.beginning_offsets(partition) == {partition: 6}


# --- pause ----------------------------------------------------------------------------------------------------------


def test_paused_partitions_are_not_read(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    first, second = create(broker, topic := new_topic(), 2)
    for index in range(2):
        write(broker, topic, numbered(0, 50), index)
    consumer.assign([first, second])
    consumer.pause(first)
    assert consumer.paused() == {first}
    assert {record.partition for record in read(consumer, 50)} == {1}
    assert consumer.poll(0.1) == []
    assert consumer.position(first) == 0
    consumer.resume(first)
    assert consumer.paused() == frozenset()
    assert offsets_of(read(consumer, 50)) == list(range(50))


@pytest.mark.parametrize("paused", ["the one that is read", "the other"])
def test_pausing_while_iterating(broker: BrokerProcess, new_topic: Topics, consumer: Consumer, paused: str) -> None:
    """What was fetched of the paused partition comes after `resume()`, what was fetched of others comes meanwhile."""
    partitions = create(broker, topic := new_topic(), 2)
    for index in range(2):
        write(broker, topic, numbered(0, 100), index)
    consumer.assign(partitions)
    seen: dict[int, list[int]] = {0: [], 1: []}
    held: int | None = None
    for record in consumer:
        seen[record.partition].append(record.offset)
        total = len(seen[0]) + len(seen[1])
        if held is None:
            held = record.partition if paused == "the one that is read" else 1 - record.partition
            consumer.pause(partitions[held])
        elif record.partition == held:
            assert len(seen[1 - held]) == 100, "not before it was resumed"
        if len(seen[1 - held]) == 100 and consumer.paused():
            consumer.resume(partitions[held])
        if total == 200:
            break
    assert seen == {0: list(range(100)), 1: list(range(100))}


def test_a_pause_of_another_partition_loses_nothing_of_a_broken_iteration(
    broker: BrokerProcess, new_topic: Topics, consumer: Consumer
) -> None:
    partitions = create(broker, topic := new_topic(), 2)
    written = write(broker, topic, numbered(0, 100))
    consumer.assign(partitions)
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            consumer.pause(partitions[1])
        if len(seen) == 5:
            break
    assert seen + values_of(read(consumer, 95)) == written


# --- isolation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(broker: BrokerProcess, new_topic: Topics, level: str) -> None:
    (partition,) = create(broker, topic := new_topic())
    producer = make_producer(broker, transactional_id=f"of-{topic}")
    producer.init_transactions(PATIENCE_S)
    for value in ("committed", "aborted", "open"):
        producer.begin_transaction()
        send(producer, topic, [{"value": value, "partition": 0}])
        if value == "committed":
            producer.commit_transaction(PATIENCE_S)
        elif value == "aborted":
            producer.abort_transaction(PATIENCE_S)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level=level) as consumer:
        consumer.assign([partition])
        if level == "read_uncommitted":
            assert values_of(read(consumer, 3)) == [b"committed", b"aborted", b"open"]
            assert consumer.end_offsets(partition) == {partition: 5}
        else:
            assert values_of(read(consumer, 1)) == [b"committed"]
            eventually(lambda: not consumer.poll(0.05) and consumer.position(partition) == 4, "the aborted one passed")
            assert consumer.end_offsets(partition) == {partition: 4}, "where the open one begins"
            assert consumer.lag(partition) == 0
            producer.commit_transaction(PATIENCE_S)
            assert values_of(read(consumer, 1)) == [b"open"]


# --- what the user brings -------------------------------------------------------------------------------------------


def test_deserializers(broker: BrokerProcess, new_topic: Topics) -> None:
    create(broker, topic := new_topic())
    write(broker, topic, [Record(b"k", b'{"a": 1}'), Record(None, None)])
    settings = {"key_deserializer": "str", "value_deserializer": "json", "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.assign([(topic, 0)])
        first, second = read(consumer, 2)
        assert (first.key, first.value) == ("k", {"a": 1})
        assert (second.key, second.value) == (None, None)


@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_a_deserializer_that_raises(broker: BrokerProcess, new_topic: Topics, way: str) -> None:
    """The position stays at the bad record, what came before was handed out; a seek past it goes on."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, [b"1", b"2", b"rubbish", b"4"])
    settings: dict[str, Any] = {"value_deserializer": int, "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap, **settings) as consumer:
        consumer.assign([partition])
        seen: list[int] = []

        def go_on() -> None:
            if way == "iterate":
                for record in consumer:
                    seen.append(record.value)
                    if record.value == 4:
                        return
            while 4 not in seen:
                seen.extend(values_of(consumer.poll(PATIENCE_S)))

        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as raised:
                go_on()
            assert (raised.value.partition, raised.value.offset) == (partition, 2)
            assert consumer.position(partition) == 2
        assert seen == [1, 2]
        consumer.seek(partition, 3)
        go_on()
        assert seen == [1, 2, 4]


class OddOnly(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record.replace(value=b"odd") for record in records if record.offset % 2]


class Nothing(ConsumerInterceptor):
    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if not record.topic.endswith("hidden")]


def test_interceptors(broker: BrokerProcess, new_topic: Topics) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", interceptors=[OddOnly]) as consumer:
        consumer.assign([partition])
        assert [(record.offset, record.value) for record in read(consumer, 5)] == [(n, b"odd") for n in (1, 3, 5, 7, 9)]
        assert consumer.position(partition) == 10, "positions count what was read"


@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_what_an_interceptor_hides_does_not_hold_up_the_rest(
    broker: BrokerProcess, new_topic: Topics, way: str
) -> None:
    (hidden,) = create(broker, f"{new_topic()}-hidden")
    (shown,) = create(broker, new_topic())
    write(broker, hidden.topic, numbered(0, 2_000))
    write(broker, shown.topic, [b"shown"])
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", interceptors=[Nothing]) as consumer:
        consumer.assign([hidden, shown])
        found = read(consumer, 1)[0] if way == "poll" else next(iter(consumer))
        assert found.value == b"shown"
        eventually(lambda: not consumer.poll(0.05) and consumer.position(hidden) == 2_000, "all passed over")


def test_assigning_anew(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    """Partitions that stay keep their positions; those that come again begin anew."""
    first, second = create(broker, topic := new_topic(), 2)
    for index in range(2):
        write(broker, topic, numbered(0, 10), index)
    consumer.assign([first])
    read(consumer, 10)
    consumer.assign([first, second])
    assert consumer.assignment() == {first, second}
    assert {record.partition for record in read(consumer, 10)} == {1}
    consumer.assign([second])
    consumer.assign([first])
    assert offsets_of(read(consumer, 10)) == list(range(10))
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    with pytest.raises(SubscriptionConflict):
        consumer.poll(0)


def test_without_a_group_nothing_is_committed(broker: BrokerProcess, new_topic: Topics, consumer: Consumer) -> None:
    create(broker, topic := new_topic())
    consumer.assign([(topic, 0)])
    for call in (consumer.commit, consumer.committed, consumer.commit_async, consumer.group_metadata):
        with pytest.raises(InvalidConfig, match=r"needs a group: set group.id"):
            call()
    with pytest.raises(InvalidConfig, match=r"subscribe\(\) needs a group"):
        consumer.subscribe(topic)


def test_a_topic_that_comes_later(broker: BrokerProcess, new_topic: Topics) -> None:
    partition = TopicPartition(new_topic(), 0)
    settings: dict[str, Any] = {"allow_auto_create_topics": False, "metadata_max_age_ms": 200}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([partition])
        assert consumer.poll(0.3) == []
        create(broker, partition.topic)
        write(broker, partition.topic, [b"there"])
        assert values_of(read(consumer, 1)) == [b"there"]
