"""How micro-batches are planned, on real brokers, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import oncelog
from oncelog.spark.options import BadOption
from oncelog.spark.source.losses import DataLoss
from oncelog.spark.source.offsets import Json
from oncelog.spark.source.partition import RangePartition
from oncelog.spark.source.stream import StreamReader
from oncelog.types import TopicPartition
from tests.spark.source.support import Transactions, await_markers, send, settings_for, stream_reader
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers
ALL = ReadAllAvailable()


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[oncelog.Admin]:
    with oncelog.Admin(broker.bootstrap) as one:
        yield one


@pytest.fixture
def topic(admin: oncelog.Admin, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    admin.create_topic(name, partitions=2)
    return name


def planned(reader: StreamReader, start: Json, end: Json) -> list[tuple[str, int, int]]:
    found = reader.partitions(start, end)
    assert all(isinstance(one, RangePartition) for one in found)
    return [(str(one.value.partition), one.value.start, one.value.end) for one in found]


def test_a_stream_goes_from_batch_to_batch(broker: BrokerProcess, topic: str) -> None:
    reader = stream_reader(broker, topic)
    begun = reader.initialOffset()
    assert begun == {topic: {"0": 0, "1": 0}}
    assert reader.latestOffset(begun, ALL) == begun
    assert planned(reader, begun, begun) == []
    send(broker, topic, "abc", partition=1)
    end = reader.latestOffset(begun, ALL)
    assert end == {topic: {"0": 0, "1": 3}} == reader.reportLatestOffset()
    assert planned(reader, begun, end) == [(f"{topic}-1", 0, 3)]
    travelled = pickle.loads(pickle.dumps(reader))
    assert [row for one in reader.partitions(begun, end) for row in travelled.read(one)]
    reader.stop()


def test_the_end_is_the_last_stable_offset(broker: BrokerProcess, topic: str) -> None:
    reader = stream_reader(broker, topic)
    with Transactions(broker, topic) as transactions:
        transactions.write("ab", commit=True)
        transactional_id = f"open-{topic}"
        with oncelog.Producer(broker.bootstrap, transactional_id=transactional_id) as open_one:
            open_one.init_transactions()
            open_one.begin()
            open_one.send(topic, value="c", partition=0).result(60)
            assert reader.latestOffset({}, ALL)[topic]["0"] == 3
            open_one.commit()
        await_markers(broker, transactional_id)
        assert reader.latestOffset({}, ALL)[topic]["0"] == 5
    reader.stop()


def test_a_limit_is_shared_in_proportion(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, map(str, range(90)), partition=0)
    send(broker, topic, map(str, range(10)), partition=1)
    reader = stream_reader(broker, topic, maxOffsetsPerTrigger="20", minPartitions="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    begun = reader.initialOffset()
    first = reader.latestOffset(begun, limit)
    assert first == {topic: {"0": 18, "1": 2}}
    assert [end - start for _, start, end in planned(reader, begun, first)] == [6, 6, 6, 2]
    assert reader.latestOffset(first, ALL) == {topic: {"0": 90, "1": 10}}
    reader.stop()


def test_few_records_are_waited_for_but_not_forever(broker: BrokerProcess, topic: str) -> None:
    reader = stream_reader(broker, topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    begun = reader.initialOffset()
    send(broker, topic, "a", partition=0)
    first = reader.latestOffset(begun, limit)
    assert first == {topic: {"0": 1, "1": 0}}, "the first batch does not wait"
    send(broker, topic, "b", partition=0)
    assert reader.latestOffset(first, limit) == first
    send(broker, topic, map(str, range(9)), partition=0)
    assert reader.latestOffset(first, limit) == {topic: {"0": 11, "1": 0}}
    reader.stop()


def test_available_now_has_a_goal(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, "abcd", partition=0)
    reader = stream_reader(broker, topic, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    send(broker, topic, "efgh", partition=0)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first[topic]["0"] == 3
    goal = reader.latestOffset(first, limit)
    assert goal[topic]["0"] == 4, "one offset is less than minOffsetsPerTrigger, but nothing more will come"
    assert reader.latestOffset(goal, limit) == goal
    reader.stop()


def test_new_partitions_and_topics_are_read_from_their_beginning(
    broker: BrokerProcess, admin: oncelog.Admin, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    admin.create_topic(name, partitions=1)
    reader = stream_reader(broker, name, subscribePattern=f"{name}(-more)?")
    begun = reader.initialOffset()
    assert begun == {name: {"0": 0}}
    admin.create_partitions(name, 2)
    admin.create_topic(f"{name}-more", partitions=1)
    admin.create_topic(f"{name}-more-not", partitions=1)
    send(broker, name, "ab", partition=1)
    send(broker, f"{name}-more", "abc")
    end = reader.latestOffset(begun, ALL)
    assert end == {name: {"0": 0, "1": 2}, f"{name}-more": {"0": 3}}
    assert planned(reader, begun, end) == [(f"{name}-1", 0, 2), (f"{name}-more-0", 0, 3)]
    admin.delete_records({TopicPartition(name, 1): 1})
    with pytest.raises(DataLoss, match=f"{name}-1 is new to this query, and its log begins at 1"):
        reader.partitions(begun, end)
    reader.stop()


def test_a_deleted_topic_is_a_loss_unless_told_otherwise(
    broker: BrokerProcess, admin: oncelog.Admin, topic: str
) -> None:
    send(broker, topic, "abc", partition=0)
    begun = {topic: {"0": 1, "1": 0}}
    strict, lenient = stream_reader(broker, topic), stream_reader(broker, topic, failOnDataLoss="false")
    for reader in (strict, lenient):
        assert reader.latestOffset(begun, ALL) == {topic: {"0": 3, "1": 0}}
    admin.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 is not there any more, offset 1 was next"):
        strict.latestOffset(begun, ALL)
    assert lenient.latestOffset(begun, ALL) == {}
    admin.create_topic(topic, partitions=2)
    eventually(lambda: topic in {one.name for one in admin.list_topics()}, "the topic is there again")
    with pytest.raises(DataLoss, match="was deleted and created again"):
        strict.latestOffset(begun, ALL)
    with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 0, before offset 1"):
        stream_reader(broker, topic).latestOffset(begun, ALL)
    send(broker, topic, "d", partition=0)
    end = lenient.latestOffset({topic: {"0": 3, "1": 0}}, ALL)
    assert planned(lenient, {topic: {"0": 3, "1": 0}}, end) == [(f"{topic}-0", 0, 1)]
    for reader in (strict, lenient):
        reader.stop()


def test_a_query_begins_where_it_is_told(broker: BrokerProcess, admin: oncelog.Admin, topic: str) -> None:
    for number in range(10):
        send(broker, topic, [str(number)], partition=0, timestamp_ms=1_000 + number)
    admin.delete_records({TopicPartition(topic, 0): 2})

    def begin(**raw: str) -> dict[str, int]:
        reader = StreamReader(settings_for(broker, topic, **raw))
        try:
            return reader.initialOffset()[topic]
        finally:
            reader.stop()

    assert begin() == {"0": 10, "1": 0}
    assert begin(startingOffsets="earliest") == {"0": 2, "1": 0}
    assert begin(startingOffsets=f'{{"{topic}": {{"0": 5, "1": -1}}}}') == {"0": 5, "1": 0}
    assert begin(startingTimestamp="1005", startingOffsetsByTimestampStrategy="latest") == {"0": 5, "1": 0}
    gone = f'{{"{topic}": {{"0": 1, "1": -2}}}}'
    with pytest.raises(DataLoss, match=f"{topic}-0 was to be read from offset 1 on, but its log has 2 to 10"):
        begin(startingOffsets=gone)
    assert begin(startingOffsets=gone, failOnDataLoss="false") == {"0": 2, "1": 0}
    with pytest.raises(BadOption, match="must name every partition"):
        begin(startingOffsets=f'{{"{topic}": {{"0": 5}}}}')


def test_what_does_not_exist_is_named(broker: BrokerProcess, topic: str, new_topic: Callable[[], str]) -> None:
    missing = new_topic()
    with pytest.raises(BadOption, match=missing):
        stream_reader(broker, missing).initialOffset()
    with pytest.raises(BadOption, match=f"{topic}-7"):
        stream_reader(broker, topic, assign=f'{{"{topic}": [0, 7]}}').initialOffset()
