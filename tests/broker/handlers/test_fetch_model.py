"""Random histories of logs and of a reader: what the handler tells, looking only at what may have changed, is what a
model tells that visits every partition each time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oncelog.broker.handlers import fetch
from oncelog.broker.request import Answer, Pending, Request
from oncelog.broker.transactions.markers import Outcome, write_marker
from oncelog.errors import KafkaError
from oncelog.records import kernel
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_response,
)
from tests.broker.naive_fetch import Found, NaivePurgatory, NaiveSession
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.support.batches import make_batch

TOPICS = {"a": 5, "b": 3}
TRANSACTIONAL = 0x10
STEPS = 120
NO_SESSION = 0


class History:
    def __init__(self, seed: int, version: int, is_incremental: bool, committed_only: bool) -> None:
        self.random = random.Random(seed)
        self.desk = Desk(FailingStorage(), "/data")
        for topic, count in TOPICS.items():
            self.desk.create(topic, count)
        self.version = version
        self.is_incremental = is_incremental
        self.isolation = int(committed_only)
        self.session_id, self.epoch = NO_SESSION, 0 if is_incremental else -1
        self.wanted: dict[TopicPartition, FetchPartition] = {}
        self.model = NaiveSession(self.desk.broker, is_incremental=is_incremental)
        NaivePurgatory(self.desk.broker, lambda: self.model.waiting)
        self.pending: Pending | None = None
        self.answer: Any = None
        self.expected: Found | None = None
        self.open: dict[tuple[TopicPartition, int], int] = {}
        """Transactions, by partition and producer."""
        self.ids: dict[str, Any] = {}
        self.sequences: dict[tuple[TopicPartition, int], int] = {}

    # --- the reader -------------------------------------------------------------------------------------------------

    def topic_id(self, topic: str) -> Any:
        return self.desk.broker.topic_id(topic) if self.version >= 13 else None

    def any_partition(self) -> TopicPartition:
        topic = self.random.choice(list(TOPICS))
        return TopicPartition(topic, self.random.randrange(TOPICS[topic]))

    def position(self, partition: TopicPartition) -> FetchPartition:
        log = self.desk.broker.logs.logs.get(partition)
        end = 0 if log is None else log.high_watermark
        offset = self.random.choice([end, end, end, max(0, end - 2), 0, end + 1])
        epoch = self.random.choice([-1, -1, -1, 0])
        fetched = self.random.choice([-1, -1, -1, -1, 0]) if self.version >= 12 else -1
        return FetchPartition(partition.partition, epoch, offset, fetched, -1, self.random.choice([100, 1 << 20]))

    def fetch(self) -> None:
        if self.pending is not None:
            return
        changed = {}
        is_first = not self.wanted
        for _ in range(6 if is_first else self.random.choice([0, 0, 1, 2])):
            partition = self.any_partition()
            if self.topic_id(partition.topic) is None and self.version >= 13:
                continue
            changed[partition] = self.wanted[partition] = self.position(partition)
        forgotten = []
        if len(self.wanted) > 3 and self.random.random() < 0.2:
            gone = self.random.choice(list(self.wanted))
            del self.wanted[gone]
            changed.pop(gone, None)
            forgotten = [gone]
        if not self.wanted:
            return
        named = changed if self.is_incremental else self.wanted
        request = FetchRequest(
            self.random.choice([0, 1_000]),
            self.random.choice([1, 1, 200]),
            self.random.choice([1, 150, 1 << 20]),
            self.isolation,
            self.session_id,
            self.epoch,
            [FetchTopic(*self.key(one), [position]) for one, position in self.shuffled(named)],
            [ForgottenTopic(*self.key(one), [one.partition]) for one in forgotten] if self.is_incremental else [],
        )
        self.expected = self.model.fetch(request)
        self.take(self.dispatch(request))

    def shuffled(self, named: dict[TopicPartition, FetchPartition]) -> list[tuple[TopicPartition, FetchPartition]]:
        """A reader without a session names its partitions in any order."""
        items = list(named.items())
        if not self.is_incremental:
            self.random.shuffle(items)
        return items

    def key(self, partition: TopicPartition) -> tuple[str, Any]:
        return ("", self.seen_id(partition.topic)) if self.version >= 13 else (partition.topic, None)

    def seen_id(self, topic: str) -> Any:
        """As the reader has learned it: also of a topic that is gone."""
        return self.ids.setdefault(topic, self.desk.broker.topic_id(topic))

    def dispatch(self, request: FetchRequest) -> Answer:
        head = (int(ApiKey.FETCH), self.version, 1, "reader")
        return fetch.handle(self.desk.broker, Request(*head, request, NOW_MS, NOW_MS, None, self.desk.peer))

    def take(self, answer: Answer) -> None:
        if isinstance(answer, Pending):
            assert self.expected is None, "the model does not wait"
            self.pending, self.answer = answer, None
            answer.on_complete = self.woken
            return
        assert self.expected is not None, "the model waits"
        self.compare(answer)

    def woken(self, answer: Any) -> None:
        self.answer = answer
        self.expected = self.model.finish()  # at this moment: what woke it may go on

    def expire(self) -> None:
        if self.pending is not None:
            assert self.pending.expire is not None
            self.pending.expire()
            self.settle()

    def settle(self) -> None:
        """After each step: whoever was woken has its answer, and nobody else."""
        if self.pending is None:
            return
        waiting = self.model.waiting
        if self.answer is None:
            assert waiting is not None
            assert not waiting.is_woken, "it should have been woken"
            return
        answer, self.pending, self.answer = self.answer, None, None
        self.compare(answer)

    def compare(self, chunks: Any) -> None:
        body = b"".join(one if isinstance(one, bytes) else one.read_all() for one in chunks)
        response = decode_fetch_response(memoryview(body), 0, self.version)
        assert response.error_code == 0
        told = {(topic.topic_id or topic.name, one.index): one for topic in response.topics for one in topic.partitions}
        assert self.expected is not None
        expected = {key: self.plain(one) for key, one in self.expected.items()}
        assert {key: self.plain(one) for key, one in told.items()} == expected
        if self.is_incremental:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1

    def plain(self, one: Any) -> Any:
        records = one.records
        data = b"" if records is None else bytes(records) if isinstance(records, memoryview) else records.read_all()
        leader = one.current_leader
        aborted = None if one.aborted is None else [tuple(each) for each in one.aborted]
        head = (one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset)
        return (*head, aborted, one.diverging_epoch, leader, data)

    # --- the logs ---------------------------------------------------------------------------------------------------

    def append(self) -> None:
        partition = self.any_partition()
        batch = bytearray(make_batch([bytes(self.random.choice([10, 100]))]))
        self.store(partition, batch)

    def append_in_transaction(self) -> None:
        partition, producer = self.any_partition(), self.random.randrange(1, 3)
        sequence = self.sequences.get((partition, producer), 0)
        batch = make_batch([b"t"], producer_id=producer, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)
        if self.store(partition, bytearray(batch)):
            self.sequences[partition, producer] = sequence + 1
            self.open[partition, producer] = 1

    def store(self, partition: TopicPartition, batch: bytearray) -> bool:
        broker = self.desk.broker
        try:
            log = broker.partition(*partition)
            log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS)
        except KafkaError:
            return False
        log.advance_high_watermark(log.log_end_offset)
        broker.purgatory.appended(partition, len(batch))
        return True

    def end_transaction(self) -> None:
        if self.open:
            partition, producer = self.random.choice(list(self.open))
            del self.open[partition, producer]
            outcome = Outcome(producer, 0, 0, self.random.random() < 0.5, 1)
            write_marker(self.desk.broker, partition, outcome, NOW_MS, lambda _: None)

    def delete_records(self) -> None:
        partition = self.any_partition()
        log = self.desk.broker.logs.logs.get(partition)
        if log is not None and not log.offline:
            log.delete_records(self.random.randint(0, log.high_watermark))
            if self.random.random() < 0.5:  # else by retention, which wakes nobody
                self.desk.broker.purgatory.changed(partition)

    def truncate(self) -> None:
        partition = self.any_partition()
        log = self.desk.broker.logs.logs.get(partition)
        if log is not None and not log.offline:
            self.desk.broker.logs.truncate(partition, max(0, log.log_end_offset - 1), NOW_MS)
            self.sequences = {key: one for key, one in self.sequences.items() if key[0] != partition}
            self.open = {key: one for key, one in self.open.items() if key[0] != partition}

    def fail(self) -> None:
        partition = self.any_partition()
        log = self.desk.broker.logs.logs.get(partition)
        if log is not None and not log.offline:
            log.give_up("the test", OSError("broken"))
            if self.random.random() < 0.5:
                self.desk.broker.log_failed(partition)

    def delete_topic(self) -> None:
        topic = self.random.choice(list(TOPICS))
        if self.desk.broker.topic_id(topic) is None:
            self.desk.create(topic, TOPICS[topic])
            if self.random.random() < 0.5:
                self.ids.pop(topic, None)
        else:
            self.seen_id(topic)
            self.desk.ask("delete_topics", 6, {"topics": [{"name": topic, "topic_id": None}], "timeout": 1})
            self.sequences = {key: one for key, one in self.sequences.items() if key[0].topic != topic}
            self.open = {key: one for key, one in self.open.items() if key[0].topic != topic}

    def run(self) -> None:
        steps = [
            (self.fetch, 12),
            (self.append, 6),
            (self.append_in_transaction, 3),
            (self.end_transaction, 3),
            (self.delete_records, 2),
            (self.truncate, 1),
            (self.expire, 2),
            (self.fail, 0.15),
            (self.delete_topic, 0.4),
        ]
        for _ in range(STEPS):
            (step,) = self.random.choices([step for step, _ in steps], [weight for _, weight in steps])
            step()
            self.settle()
        self.expire()


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize("is_incremental", [True, False])
@pytest.mark.parametrize("version", [11, 12, 16])
def test_what_is_told_is_what_a_look_at_everything_tells(
    version: int, is_incremental: bool, committed_only: bool
) -> None:
    for seed in range(12):
        try:
            History(seed, version, is_incremental, committed_only).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
