"""A source with numbered records, a target, and calls of `process()` between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import oncelog
from tests.support.process import BrokerProcess
from tests.support.transactions import await_stable

PARTITIONS, RECORDS = 3, 300
WAIT_S = 60.0

Function = Callable[[Any], Any]


class Scene:
    def __init__(self, broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
        self.broker = broker
        self.source, self.target, self.dead = new_topic(), new_topic(), new_topic()
        with oncelog.Admin(broker.bootstrap) as admin:
            for topic in (self.source, self.target, self.dead):
                admin.create_topic(topic, partitions=PARTITIONS)

    def fill(self, count: int = RECORDS, start: int = 0, **settings: Any) -> None:
        """Keys and values are the records' numbers; with a `transactional_id`, in a transaction."""
        with oncelog.Producer(self.broker.bootstrap, **settings) as producer:
            if settings:
                with producer.transaction():
                    self._send(producer, start, count)
                await_stable(self.broker, self.source, PARTITIONS)
            else:
                self._send(producer, start, count)

    def _send(self, producer: oncelog.Producer, start: int, count: int) -> None:
        for number in range(start, start + count):
            producer.send(self.source, value=str(number), key=str(number), partition=number % PARTITIONS)

    def arguments(self, **changes: Any) -> dict[str, Any]:
        usual = {
            "bootstrap_servers": self.broker.bootstrap,
            "group": f"of-{self.source}",
            "transactional_id": f"id-{self.source}",
            "batch_records": 50,
            "until_end": True,
        }
        return {**usual, **changes}

    def process(self, function: Function, **changes: Any) -> oncelog.ProcessReport:
        return oncelog.process(self.source, function, self.target, **self.arguments(**changes))

    async def process_async(self, function: Function, **changes: Any) -> oncelog.ProcessReport:
        return await oncelog.process_async(self.source, function, self.target, **self.arguments(**changes))

    def seen(self, topic: str | None = None, **settings: Any) -> list[oncelog.ConsumerRecord]:
        """What a reader of committed records finds, partition by partition in order."""
        topic = topic or self.target
        await_stable(self.broker, topic, PARTITIONS)
        places = [oncelog.TopicPartition(topic, index) for index in range(PARTITIONS)]
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", **settings}
        with oncelog.Consumer(self.broker.bootstrap, **options) as consumer:
            consumer.assign(places)
            ends = consumer.end_offsets(*places, timeout=WAIT_S)
            found: list[oncelog.ConsumerRecord] = []
            while any(consumer.position(place, timeout=WAIT_S) < ends[place] for place in places):
                found += consumer.poll(1.0)
        return found

    def values(self, topic: str | None = None) -> Counter[bytes]:
        return Counter(record.value for record in self.seen(topic))

    def has_all_once(self, count: int = RECORDS) -> bool:
        """Every number of the source, as `double` makes it, once."""
        return self.values() == Counter(b"%d" % (2 * number) for number in range(count))

    def committed(self, group: str | None = None) -> dict[oncelog.TopicPartition, int | None]:
        places = [oncelog.TopicPartition(self.source, index) for index in range(PARTITIONS)]
        reader = {"group_id": group or f"of-{self.source}", "isolation_level": "read_committed"}
        with oncelog.Consumer(self.broker.bootstrap, **reader) as consumer:
            found = consumer.committed(*places, timeout=WAIT_S)
        return {place: None if one is None else one.offset for place, one in found.items()}


def double(records: list[oncelog.ConsumerRecord]) -> list[tuple[bytes, bytes]]:
    return [(record.key, b"%d" % (2 * int(record.value))) for record in records]
