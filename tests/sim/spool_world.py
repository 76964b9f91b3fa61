"""The producer's core with a spool in a world that can kill it: the model cluster, a fake clock, and a disk that fails.

A life is one process of the producer: accumulator, sender, network, spool. `kill` ends it at once, wherever it is: its
connections break (what was on them may arrive later), its memory is gone, and the next life finds its files. A crash
planned in the disk (`crash_soon`) does the same in the middle of a write.

What must hold in the end: every record for which `accept` returned, and which was not reported as failed, is stored
once, in the order of sending.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from oncelog.client.accumulator import Accumulator
from oncelog.client.batch import ProducerBatch
from oncelog.client.idempotence import Idempotence
from oncelog.client.network import Network
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.sender import SenderCore
from oncelog.client.spool.errors import SpoolError, SpoolFateUnknown
from oncelog.client.spool.feeding import Feeder
from oncelog.client.spool.resolving import Resolver
from oncelog.client.spool.spool import Recovery, Spool, SpoolConfig, read_discarded
from oncelog.client.spool.spooled_sender import SpooledSender
from oncelog.records import compression
from oncelog.records.batch import decode_records
from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import decode_request_header, encode_response
from tests.sim.model_cluster import MESSAGE_TOO_LARGE, NOT_LEADER_OR_FOLLOWER, VERSIONS, Delivered, ModelCluster
from tests.sim.producer_world import (
    PARTITIONS,
    TOPIC,
    WALL_MS,
    BrokenPromiseError,
    ProducerWorld,
    Sent,
    _network_settings,
    stored_numbers,
)
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash

DIRECTORY = "data/spool"
GIVEN_UP_BEFORE = "its leader lacks an earlier batch"
"""What nobody can tell in this world either: a batch was given up that may arrive yet, and those behind it as well."""
SPOOL_SETTINGS = {"spool_dir": DIRECTORY, "delivery_timeout_ms": 20_000, "buffer_memory": 6_000}


class SpoolCluster(ModelCluster):
    """Tells which producers its partitions know."""

    def execute(self, request: Delivered) -> bytes | object | None:
        header, position = decode_request_header(memoryview(request.frame))
        if header.api_key != ApiKey.DESCRIBE_PRODUCERS:
            return super().execute(request)
        asked = codec.decode_exactly("DescribeProducersRequest", 0, memoryview(request.frame), position)
        topics = [
            {"name": topic["name"], "partitions": [self._known(request, topic["name"], index) for index in indexes]}
            for topic in asked["topics"]
            for indexes in [topic["partition_indexes"]]
        ]
        return encode_response(header, codec.encode("DescribeProducersResponse", 0, {"topics": topics}))

    def _known(self, request: Delivered, topic: str, index: int) -> Message:
        partition = self.partitions[TopicPartition(topic, index)]
        if partition.leader != request.node_id:
            return {"partition_index": index, "error_code": NOT_LEADER_OR_FOLLOWER, "active_producers": []}
        last = {}
        for producer_id in {stored.batch.producer_id for stored in partition.log}:
            if remembered := partition._remembered(producer_id):
                last[producer_id] = remembered[-1].batch
        producers = [
            {
                "producer_id": producer_id,
                "producer_epoch": batch.epoch,
                "last_sequence": (batch.sequence + len(batch.records) - 1) % 2**31,
                "coordinator_epoch": -1,
            }
            for producer_id, batch in last.items()
        ]
        return {"partition_index": index, "error_code": 0, "active_producers": producers}


def number_of(value: bytes | None) -> int:
    return int((value or b"").partition(b"#")[2].rstrip(b"."))


class TellingFeeder(Feeder):
    """Tells the world what it says in the log of records that failed, which it does before it settles them."""

    given_up: set[tuple[TopicPartition, int]]

    def settled(self, batch: ProducerBatch) -> None:
        if batch.delivery.error is not None and not self.keeps_failed:
            place = TopicPartition(batch.topic, batch.partition)
            for record in decode_records(batch.sealed(compression.NONE, None)):
                self.given_up.add((place, number_of(record.value)))
        super().settled(batch)


class SpoolWorld(ProducerWorld):
    def __init__(self, *, is_durable: bool = False, **settings: Any) -> None:
        super().__init__(new_idempotence=Idempotence, **{**SPOOL_SETTINGS, **settings})
        self.cluster = self._new_cluster()
        self._jitter: Callable[[], float] = lambda: 0.5
        self.storage = FaultyStorage()
        self.spool_config = SpoolConfig(max_bytes=400_000, is_durable=is_durable)
        self.lives = 0
        self.accepted: list[Sent] = []
        self.given_up: set[tuple[TopicPartition, int]] = set()
        """Records whose failure was told, if only in the log. Where a broker may have stored them, it may do so yet."""
        self.when_unknown = "refuse"
        self._begin_life()

    def _new_cluster(self) -> ModelCluster:
        return SpoolCluster(
            {TOPIC: PARTITIONS},
            max_message_bytes=self.cluster.max_message_bytes,
            versions={**self.cluster.versions, ApiKey.DESCRIBE_PRODUCERS: (0, 0)},
            leader_hints=self.cluster.leader_hints,
        )

    # --- lives ------------------------------------------------------------------------------------------------------

    def _begin_life(self) -> None:
        self.lives += 1
        self._links = {}
        self._unanswered.clear()
        config = self.config
        self.accumulator = Accumulator(
            batch_size=config.batch_size,
            buffer_memory=config.buffer_memory,
            max_request_size=config.max_request_size,
            lock=None,
            new_waiter=_no_waiter,
        )
        self.counters = ProducerCounters(self.now_ms)
        sender = SenderCore(
            config,
            self.accumulator,
            Network(_network_settings(config), self._jitter),
            self.counters,
            jitter=self._jitter,
            on_settled=self._settled,
            on_news=lambda: None,
        )
        self.spool, recovery = Spool.open(self.storage, DIRECTORY, self.spool_config)
        self.core = self._new_spooled_sender(sender, recovery)  # type: ignore[assignment]
        self.sender = sender
        sender.awaited_topics[TOPIC] = 1
        self._poll()

    def _new_spooled_sender(self, sender: SenderCore, recovery: Recovery) -> SpooledSender:
        self.feeder: Feeder = self._new_feeder(TellingFeeder)
        return SpooledSender(
            sender,
            self.spool,
            self.feeder,
            Resolver(sender, self.accumulator, recovery.open_partitions, lambda: WALL_MS + self.now_ms),
            directory=DIRECTORY,
            when_unknown=self.when_unknown,
            on_news=lambda: None,
        )

    def _new_feeder(self, kind: type[Any]) -> Any:
        feeder = kind(
            self.spool,
            self.accumulator,
            lock=threading.Lock(),
            new_waiter=_no_waiter,
            wall_clock_ms=lambda: WALL_MS + self.now_ms,
            loads_at_once=not self.spool_config.is_durable,
        )
        feeder.given_up = self.given_up
        return feeder

    def kill(self, requests_arrive: bool = True, power_seed: int | None = None) -> None:
        """The process dies; with a `power_seed` its machine, and what was not synced with it."""
        for line in self.lines:
            line.end(requests_arrive=requests_arrive)
        is_power_lost = power_seed is not None and self.spool_config.is_durable
        self.storage = self.storage.after_power_loss(power_seed or 0) if is_power_lost else self.storage.after_kill()
        self._begin_life()

    def survive(self, step: Callable[[], object]) -> None:
        """If the process dies of it, or gives up because its disk fails, the next life begins."""
        try:
            step()
        except SimulatedCrash:
            self.kill()
        fatal = self.core.fatal
        if isinstance(fatal, SpoolFateUnknown) and GIVEN_UP_BEFORE in str(fatal):
            self.when_unknown = "discard"
            self.kill()
        elif self._ends_a_life(fatal) or (isinstance(fatal, SpoolError) and not isinstance(fatal, SpoolFateUnknown)):
            self.kill()
        elif fatal is not None:
            raise BrokenPromiseError(f"the producer gave up: {fatal!r}")

    def _ends_a_life(self, fatal: Exception | None) -> bool:
        return False

    def refuse(self, partition: int, code: int) -> None:
        """Too large is only what is: a limit that shrinks while a batch is under way would prove nothing."""
        if code != MESSAGE_TOO_LARGE:
            super().refuse(partition, code)

    def crash_soon(self, operations: int, torn: bool) -> None:
        self.storage.crash_at(self.storage.operations + operations, torn=torn)

    def refuse_writes_soon(self, operations: int, torn: bool) -> None:
        self.storage.fail_at(self.storage.operations + operations, torn=torn)

    # --- what a user does -------------------------------------------------------------------------------------------

    def send(self, partition: int, value_bytes: int = 20) -> bool:
        topic = self.accumulator.topics.get(TOPIC)
        if topic is None:
            return False
        name = TopicPartition(TOPIC, partition % PARTITIONS)
        number = self._next_number[name]
        self._next_number[name] += 1  # never given twice: a record that was refused or cut off may still turn up
        value = f"{name}#{number}".encode().ljust(value_bytes, b".")
        sent = Sent(name, number, value, self.now_ms)
        callback = partial(self._reported, sent)
        try:
            sent.future = self.feeder.accept(
                topic.queues[name.partition], WALL_MS + self.now_ms, None, value, (), callback, self.now_ms
            )
            self._sync()
        except (SpoolError, OSError, ProducerClosed):
            return False
        self.accepted.append(sent)
        self._poll()
        return True

    def _sync(self) -> None:
        request = self.spool.sync_request() if self.spool_config.is_durable else None
        if request is None:
            return
        try:
            request.run()
        except OSError as error:
            self.spool.sync_failed(error)
            raise
        self.spool.synced(request)

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All is well again: whatever was accepted is sent, in this life."""
        self.storage.heal()
        self.heal()
        self.set_flushing(False)
        for _ in range(100):
            self.pass_time(1_000, healthy=True)
            if self.sender.fatal is not None:
                return
            if not self.core.is_asking and not self.spool.waiting and not self.accumulator.incomplete:  # type: ignore[attr-defined]
                break
        while self.cluster.stragglers:
            self.deliver_straggler(0)


def _no_waiter() -> Any:
    raise AssertionError("nobody waits in a simulation")


# --- promises -------------------------------------------------------------------------------------------------------


def discarded(world: SpoolWorld) -> set[tuple[TopicPartition, int]]:
    """Records that were moved aside because nobody could tell their fate."""
    return {
        (record.topic_partition, number_of(record.value))
        for path in world.storage.paths(".discarded")
        for record in read_discarded(bytes(world.storage.content(path)))
    }


def nothing_is_doubled_or_out_of_order(world: SpoolWorld) -> None:
    for partition in world.cluster.partitions:
        numbers = stored_numbers(world, partition)
        twice = [number for number, count in Counter(numbers).items() if count > 1]
        if twice:
            raise BrokenPromiseError(f"{partition}: {twice} are stored twice, in {numbers}")
        told = world.given_up | discarded(world)
        kept = [number for number in numbers if (partition, number) not in told]
        wrong = [pair for pair in pairwise(kept) if pair[0] > pair[1]]
        if wrong:
            raise BrokenPromiseError(f"{partition}: {wrong} are out of order, in {numbers}")


def every_accepted_record_is_stored_or_reported(world: SpoolWorld) -> None:
    partitions = world.cluster.partitions
    stored = {(partition, number) for partition in partitions for number in stored_numbers(world, partition)}
    told = stored | world.given_up | discarded(world)
    missing = [
        f"{sent.partition}#{sent.number}" for sent in world.accepted if (sent.partition, sent.number) not in told
    ]
    if missing:
        raise BrokenPromiseError(f"{missing} were accepted, and are neither stored nor reported as failed")


def the_spool_is_empty(world: SpoolWorld) -> None:
    world.spool.close()
    left = world.storage.paths(".records")
    if left:
        raise BrokenPromiseError(f"everything is settled, and {left} are still there")


__all__ = [
    "VERSIONS",
    "SpoolWorld",
    "every_accepted_record_is_stored_or_reported",
    "nothing_is_doubled_or_out_of_order",
    "the_spool_is_empty",
]
