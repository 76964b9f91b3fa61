"""How a batch query is planned, on real brokers, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, InputPartition, LessThan

import oncelog
from oncelog.spark.options import Options
from oncelog.spark.source import batch_reader
from oncelog.spark.source.batch import BatchReader, FilteringBatchReader
from oncelog.spark.source.losses import DataLoss, OffsetsBeyondLog
from oncelog.spark.source.settings import batch_settings
from oncelog.types import TopicPartition
from tests.spark.source.support import send
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    """Two partitions of ten records, a millisecond apart, and one record that came late."""
    name = new_topic()
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    for partition in range(2):
        for number in (0, 1, 2, 3, 4, 5, 6, 7, 8, 3):
            send(broker, name, [str(number)], partition=partition, timestamp_ms=1_000 + number)
    return name


def options_for(broker: BrokerProcess, topic: str, **raw: str) -> Options:
    return Options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **raw}, "the source")


def planned(reader: BatchReader) -> list[tuple[int, int, int]]:
    return [(one.value.partition.partition, one.value.start, one.value.end) for one in reader.partitions()]


def test_ranges_are_what_the_options_say(broker: BrokerProcess, topic: str) -> None:
    def ranges(**raw: str) -> list[tuple[int, int, int]]:
        return planned(BatchReader(batch_settings(options_for(broker, topic, **raw))))

    assert ranges() == [(0, 0, 10), (1, 0, 10)]
    offsets = {
        "startingOffsets": f'{{"{topic}": {{"0": 2, "1": -2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 7, "1": -1}}}}',
    }
    assert ranges(**offsets) == [(0, 2, 7), (1, 0, 10)]
    assert ranges(startingTimestamp="1004", endingTimestamp="1006") == [(0, 4, 6), (1, 4, 6)]
    assert ranges(endingTimestamp="2000") == [(0, 0, 10), (1, 0, 10)]
    assert ranges(minPartitions="4") == [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]
    assert ranges(maxRecordsPerPartition="6") == [(0, 0, 5), (0, 5, 10), (1, 0, 5), (1, 5, 10)]
    beyond = {"endingOffsets": f'{{"{topic}": {{"0": 11, "1": -1}}}}'}
    with pytest.raises(OffsetsBeyondLog, match=f"{topic}-0 was to be read up to offset 11, but its log ends at 10"):
        ranges(**beyond)
    assert ranges(failOnDataLoss="false", **beyond) == [(0, 0, 10), (1, 0, 10)]


def test_filters_shorten_the_ranges(broker: BrokerProcess, topic: str) -> None:
    def ranges(*filters: Filter) -> list[tuple[int, int, int]]:
        reader = FilteringBatchReader(batch_settings(options_for(broker, topic)))
        list(reader.pushFilters(list(filters)))
        return planned(reader)

    since = datetime.fromtimestamp(1.004, UTC)
    assert ranges(EqualTo(("partition",), 1)) == [(1, 0, 10)]
    assert ranges(EqualTo(("partition",), 7)) == []
    assert ranges(EqualTo(("partition",), 1), LessThan(("offset",), 3)) == [(1, 0, 3)]
    assert ranges(GreaterThanOrEqual(("timestamp",), since)) == [(0, 4, 10), (1, 4, 10)]
    assert ranges(LessThan(("timestamp",), since)) == [(0, 0, 10), (1, 0, 10)], "a late record may come last"
    assert ranges(GreaterThanOrEqual(("timestamp",), datetime.now(UTC))) == []


def test_removed_records_are_a_loss_only_where_a_query_names_them(broker: BrokerProcess, topic: str) -> None:
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 5})
    assert planned(BatchReader(batch_settings(options_for(broker, topic)))) == [(0, 5, 10), (1, 0, 10)]
    named = {"startingOffsets": f'{{"{topic}": {{"0": 2, "1": 2}}}}'}
    with pytest.raises(DataLoss, match=f"{topic}-0 was to be read from offset 2"):
        BatchReader(batch_settings(options_for(broker, topic, **named))).partitions()
    lenient = batch_settings(options_for(broker, topic, failOnDataLoss="false", **named))
    assert planned(BatchReader(lenient)) == [(0, 5, 10), (1, 2, 10)]


def test_a_reader_takes_filters_only_where_spark_pushes_them(broker: BrokerProcess, topic: str) -> None:
    reader = batch_reader(options_for(broker, topic))
    assert type(reader) is BatchReader
    assert list(reader.read(InputPartition(None))) == []
