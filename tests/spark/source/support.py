"""What the tests of the source share: settings, topics with transactions in them, and what a reader sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import oncelog
from oncelog.spark.options import Options
from oncelog.spark.source.ranges import OffsetRange
from oncelog.spark.source.reading import read_range
from oncelog.spark.source.settings import SourceSettings, stream_settings
from oncelog.spark.source.stream import StreamReader
from oncelog.types import TopicPartition
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import state_at_rest


def settings_for(broker: BrokerProcess, topic: str, **raw: str) -> SourceSettings:
    chosen = {} if {"subscribePattern", "assign"} & raw.keys() else {"subscribe": topic}
    return stream_settings(Options({"kafka.bootstrap.servers": broker.bootstrap, **chosen, **raw}, "the source"))


def stream_reader(broker: BrokerProcess, topic: str, **raw: str) -> StreamReader:
    return StreamReader(settings_for(broker, topic, startingOffsets="earliest", **raw))


def rows_of(settings: SourceSettings, topic: str, start: int, end: int, partition: int = 0) -> list[dict[str, Any]]:
    batches = read_range(settings, OffsetRange(TopicPartition(topic, partition), start, end))
    return [row for batch in batches for row in batch.to_pylist()]


def values_of(rows: Iterable[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def send(broker: BrokerProcess, topic: str, values: Iterable[str], **fields: Any) -> None:
    with oncelog.Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value=value, **fields)


def await_markers(broker: BrokerProcess, transactional_id: str) -> None:
    with RawClient(broker.address) as client:
        state_at_rest(client, transactional_id)


class Transactions:
    """One after the other, each committed or aborted, with its markers in the log."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._transactional_id = f"tx-{topic}"
        self._producer = oncelog.Producer(broker.bootstrap, transactional_id=self._transactional_id)
        self._producer.init_transactions()

    def __enter__(self) -> Transactions:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._producer.close()

    def write(self, values: Iterable[str], *, commit: bool, partition: int = 0) -> None:
        self._producer.begin()
        for value in values:
            self._producer.send(self._topic, value=value, partition=partition)
        self._producer.flush()
        if commit:
            self._producer.commit()
        else:
            self._producer.abort()
        await_markers(self._broker, self._transactional_id)
