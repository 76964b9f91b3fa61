"""The sink's two sides without Spark between them: plan, tasks and commit called as Spark would call them, and the
oracle of what a reader of committed records must find."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

import oncelog
from oncelog.client.leaders import LATEST_OFFSET
from oncelog.spark.options import Options
from oncelog.spark.sink import driver
from oncelog.spark.sink.attempts import TaskResult
from oncelog.spark.sink.settings import WHAT, SinkSettings, sink_settings
from oncelog.spark.sink.task import Place, TaskPlan, write_slot
from oncelog.types import IsolationLevel
from tests.support.confluent import make_consumer
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

Rows = Sequence[tuple[str, str]]
"""Key and value of each."""
TYPES = {"key": "string", "value": "string"}
READ_S = 1.0


@dataclass(frozen=True)
class Rig:
    broker: BrokerProcess
    topic: str
    options: dict[str, str] = field(default_factory=dict)
    query_id: str = "query"

    @property
    def prefix(self) -> str:
        return f"{self.topic}-sink"

    @property
    def settings(self) -> SinkSettings:
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "topic": self.topic,
            "transactional.id.prefix": self.prefix,
        }
        return sink_settings(Options({**given, **self.options}, WHAT), TYPES)

    def with_options(self, **options: str) -> Rig:
        return replace(self, options={**self.options, **{key.replace("_", "."): one for key, one in options.items()}})

    def plan(self) -> TaskPlan:
        return driver.plan_batch(self.settings)

    def write(self, plan: TaskPlan, batch_id: int, *slots: Rows) -> list[TaskResult]:
        return [self.write_slot(plan, batch_id, slot, rows) for slot, rows in enumerate(slots)]

    def write_slot(self, plan: TaskPlan, batch_id: int, slot: int, rows: Rows) -> TaskResult:
        place = Place(self.query_id, batch_id, slot, 0)
        return write_slot(self.settings, plan, place, iter([arrow(rows)] if rows else []))

    def commit(self, batch_id: int, results: Sequence[TaskResult]) -> None:
        driver.commit_batch(self.settings, batch_id, results)

    def run(self, batch_id: int, *slots: Rows) -> None:
        """One batch, as Spark does it: a commit that raises is followed by an abort."""
        results = self.write(self.plan(), batch_id, *slots)
        try:
            self.commit(batch_id, results)
        except BaseException:
            driver.abort_batch(self.settings, results)
            raise

    # --- the oracle ---------------------------------------------------------------------------------------------

    def visible(self, isolation: str = "read_committed") -> list[Any]:
        """What a reader of committed records gets: not our own client, and up to the end of every partition. Where a
        transaction is open, that is before it."""
        consumer = make_consumer(self.broker, isolation_level=isolation, enable_partition_eof=True)
        count = len(consumer.list_topics(self.topic, timeout=PATIENCE_S).topics[self.topic].partitions)
        consumer.assign([TopicPartition(self.topic, index, 0) for index in range(count)])
        try:
            return _read_to_the_ends(consumer, count)
        finally:
            consumer.close()

    def check(self, *expected: Rows) -> None:
        """Exactly these rows are visible, no transaction is open, and readers get to the end."""
        self.check_nothing_is_open()  # first: Kafka writes markers after it has said that it will
        rows = [(one.key().decode(), one.value().decode()) for one in self.visible()]
        assert Counter(rows) == Counter(row for some in expected for row in some)

    def check_nothing_is_open(self) -> None:
        with oncelog.Admin(self.broker.bootstrap) as admin:
            open_states = ("Ongoing", "PrepareCommit", "PrepareAbort")

            def is_quiet() -> bool:
                listed = admin.list_transactions(states=open_states)
                return not any(one.transactional_id.startswith(self.prefix) for one in listed)

            eventually(is_quiet, "no transaction of the sink is open")
            partitions = [
                oncelog.TopicPartition(self.topic, one.index) for one in admin.describe_topic(self.topic).partitions
            ]
            last = dict.fromkeys(partitions, LATEST_OFFSET)
            stable = admin.list_offsets(last, isolation_level=IsolationLevel.READ_COMMITTED)
            watermark = admin.list_offsets(last, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        assert {one: stable[one].offset for one in last} == {one: watermark[one].offset for one in last}


def _read_to_the_ends(consumer: Consumer, partitions: int) -> list[Any]:
    found: list[Any] = []
    ended: set[int] = set()
    troubles: list[KafkaError] = []  # a leader that moves, a connection that is lost: the client tries again by itself
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{len(ended)} of {partitions} partitions were read: {troubles[-3:]}"
        message = consumer.poll(READ_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        elif error.fatal():
            raise KafkaException(error)
        else:
            troubles.append(error)
    return found


def arrow(rows: Rows) -> pa.RecordBatch:
    return pa.record_batch([pa.array([key for key, _ in rows]), pa.array([one for _, one in rows])], ["key", "value"])


def numbered(name: str, count: int) -> Rows:
    return [(f"{name}-{number % 7}", f"{name}-{number}") for number in range(count)]
