"""Drives a spool as a producer does, against a model broker, and keeps the books: what was promised, what is stored.

After any accident it opens the spool again, settles what an earlier life left open by asking the broker, and goes on.
In the end `finish` sends everything and audits the broker's logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from oncelog.client.spool.errors import SpoolError, SpoolWriteFailed
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.fate import ListedProducer, judge
from oncelog.client.spool.recovery import Recovery
from oncelog.client.spool.spool import Spool, SpoolConfig
from oncelog.types import TopicPartition
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash

DIRECTORY = "data/spool"
NOW_MS = 1_700_000_000_000
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0))
SMALL = SpoolConfig(max_bytes=4000)
REMEMBERED_BATCHES = 5


class Sent(NamedTuple):
    numbers: Numbered
    values: list[bytes]


class ModelBroker:
    """One partition's log, with the rules of an idempotent append."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.producers: dict[int, tuple[int, deque[tuple[int, int]]]] = {}

    def produce(self, sent: Sent) -> None:
        (producer_id, epoch), base = sent.numbers.identity, sent.numbers.base_sequence
        last = sent.numbers.last_sequence
        known_epoch, recent = self.producers.get(producer_id, (epoch, deque(maxlen=REMEMBERED_BATCHES)))
        assert known_epoch == epoch
        if (base, last) in recent:
            return
        assert base == (recent[-1][1] + 1 if recent else 0), "a broker would call this out of order"
        self.log += sent.values
        recent.append((base, last))
        self.producers[producer_id] = (epoch, recent)

    def listing(self) -> list[ListedProducer]:
        return [ListedProducer(key, epoch, recent[-1][1]) for key, (epoch, recent) in self.producers.items()]


class Driver:
    def __init__(self, storage: FaultyStorage, config: SpoolConfig = SMALL) -> None:
        self.storage = storage
        self.config = config
        self.power_seed: int | None = None
        """With it an accident is a power failure; without, only the process dies."""
        self.brokers = {partition: ModelBroker() for partition in PARTITIONS}
        self.attempted: dict[TopicPartition, list[bytes]] = {partition: [] for partition in PARTITIONS}
        self.promised: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.next_producer_id = 100
        self.accidents = 0
        self.forget_memory()
        self.spool: Spool
        self.recovery: Recovery
        self.survive(self.open)

    def forget_memory(self) -> None:
        self.memory: dict[TopicPartition, deque[tuple[int, bytes]]] = {partition: deque() for partition in PARTITIONS}
        self.in_flight: dict[TopicPartition, deque[Sent]] = {partition: deque() for partition in PARTITIONS}
        self.next_sequence = dict.fromkeys(PARTITIONS, 0)
        self.identity = Identity(-1, -1)

    # --- accidents --------------------------------------------------------------------------------------------

    def survive(self, step: Callable[[], None]) -> None:
        """Do the step; if the process dies, live again (and do not repeat it)."""
        try:
            step()
            return
        except SimulatedCrash:
            pass
        except SpoolError:  # it could not be opened, or read: the next process finds a better disk
            self.storage.heal()
        self.accidents += 1
        self.come_back()

    def come_back(self) -> None:
        if self.power_seed is None:
            self.storage = self.storage.after_kill()
        else:
            self.storage = self.storage.after_power_loss(self.power_seed)
        self.open()

    def open(self) -> None:
        self.forget_memory()
        self.spool, self.recovery = Spool.open(self.storage, DIRECTORY, self.config)
        self.check_recovery()
        for partition in self.recovery.open_partitions:
            broker = self.brokers[partition.partition]
            judgement = judge(partition, broker.listing(), NOW_MS)
            assert not judgement.unknown
            for batch in judgement.stored:
                self.spool.settled(*partition.partition, batch.numbers.first, batch.numbers.count)
            for batch in judgement.anew:
                self.spool.void(partition.partition, batch.numbers.first, batch.numbers.end)
            for batch in (*judgement.listed, *judgement.again):
                values = [record.value or b"" for record in batch.records]
                self.in_flight[partition.partition].append(Sent(batch.numbers, values))
                self.identity = batch.numbers.identity
        self.spool.resolved()

    def check_recovery(self) -> None:
        """No accident leaves anything that looks damaged, but for what a power failure takes that was never synced."""
        assert all(batch.is_complete for one in self.recovery.open_partitions for batch in one.batches)
        assert not any(one.doubted for one in self.recovery.open_partitions)
        if self.power_seed is None:
            assert not self.recovery.damages
            assert not self.recovery.lost

    # --- what a producer does ---------------------------------------------------------------------------------

    def append(self, partition: TopicPartition, size: int = 20) -> None:
        values = self.attempted[partition]
        value = b"%s/%d " % (str(partition).encode(), len(values)) + b"." * size
        values.append(value)
        try:
            self.spool.append(*partition, NOW_MS, None, value)
        except SpoolError:
            self.refused.add(value)
            return
        if self.config.is_durable and not self.sync():
            return
        self.promised.add(value)

    def sync(self) -> bool:
        request = self.spool.sync_request()
        if request is None:
            return True
        try:
            request.run()
        except OSError as error:
            self.spool.sync_failed(error)
            return False
        self.spool.synced(request)
        return True

    def load(self, most: int = 100) -> None:
        """Into memory, as far as the bound allows."""
        while most and (record := self.spool.peek()) is not None:
            self.memory[record.topic_partition].append((record.entry, record.value or b""))
            self.spool.took(record.topic, record.partition)
            most -= 1

    def send(self, partition: TopicPartition, count: int, *, arrives: bool) -> None:
        """Number and send a batch of what is in memory; whether the broker gets it is up to the network."""
        if not self.may_number(partition):
            return
        entries = [self.memory[partition][index] for index in range(min(count, len(self.memory[partition])))]
        base = self.next_sequence[partition]
        numbers = Numbered(partition, entries[0][0], len(entries), self.identity, base, NOW_MS)
        try:
            self.spool.numbered([numbers])
        except SpoolWriteFailed:
            return
        self.next_sequence[partition] += len(entries)
        for _ in entries:
            self.memory[partition].popleft()
        self.in_flight[partition].append(Sent(numbers, [value for _, value in entries]))
        if arrives:
            self.deliver(partition)

    def may_number(self, partition: TopicPartition) -> bool:
        if not self.memory[partition] or len(self.in_flight[partition]) >= REMEMBERED_BATCHES:
            return False
        if self.identity.producer_id < 0 or self.is_old(self.identity):
            if any(self.in_flight.values()):
                return False  # batches of an earlier life come first
            self.identity = Identity(self.next_producer_id, 0)
            self.next_producer_id += 1
            self.next_sequence = dict.fromkeys(PARTITIONS, 0)
        known = self.brokers[partition].producers.get(self.identity.producer_id)
        return known is not None or not self.in_flight[partition]  # the first batch of an id goes alone

    def is_old(self, identity: Identity) -> bool:
        return identity.producer_id < self.next_producer_id - 1 or not any(self.next_sequence.values())

    def deliver(self, partition: TopicPartition) -> None:
        """Everything in flight arrives, in order; retries are recognised."""
        for sent in self.in_flight[partition]:
            self.brokers[partition].produce(sent)

    def answer(self, partition: TopicPartition) -> None:
        """The oldest batch in flight is acknowledged."""
        if self.in_flight[partition]:
            self.deliver(partition)
            sent = self.in_flight[partition].popleft()
            self.spool.settled(*partition, sent.numbers.first, sent.numbers.count)

    def close(self) -> None:
        self.spool.close()
        self.open()

    # --- the audit --------------------------------------------------------------------------------------------

    def finish(self) -> None:
        self.storage.heal()
        self.come_back()
        for _ in range(1000):
            if not self.spool.waiting and not any(self.memory.values()) and not any(self.in_flight.values()):
                break
            self.load(10)
            for partition in PARTITIONS:
                self.send(partition, 7, arrives=True)
            for partition in PARTITIONS:
                self.answer(partition)
        self.audit(complete=True)
        self.spool.close()
        assert not self.storage.paths(".records"), "what is settled takes no space"

    def audit(self, *, complete: bool) -> None:
        for partition, broker in self.brokers.items():
            stored = set(broker.log)
            assert len(stored) == len(broker.log), "nothing is stored twice"
            assert broker.log == [value for value in self.attempted[partition] if value in stored], "in order"
            assert not stored & self.refused, "what was refused is not sent"
            if complete:
                assert stored >= self.promised & set(self.attempted[partition]), "nothing promised is lost"
