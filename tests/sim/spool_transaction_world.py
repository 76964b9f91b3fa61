"""The spooled producer that sends in transactions, in a world that can kill it: the real coordinator's core, leaders
that hand out their logs, a fake clock, and a disk that fails.

What must hold in the end: every record for which `accept` returned, and which was not reported as failed, is committed
once, in the order of sending; nobody is ever asked what became of it.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from oncelog.client.batch import ProducerBatch
from oncelog.client.sender import SenderCore
from oncelog.client.spool.recovery import Recovery, without_doubts
from oncelog.client.spool.resolving import Resolver
from oncelog.client.spool.spooled_sender import SpooledSender
from oncelog.client.spool.transacting import TransactingSettings, Transactor
from oncelog.client.spool.transaction_feeding import TransactionFeeder
from oncelog.client.transaction_errors import TransactionalProducerFenced
from oncelog.records import compression
from oncelog.records.batch import build_batch, build_control_batch, decode_records
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.wire.frame import decode_request_header, encode_response
from tests.sim.model_cluster import NOT_LEADER_OR_FOLLOWER, Delivered, ModelCluster
from tests.sim.model_partition import ModelPartition, StoredBatch
from tests.sim.producer_world import PARTITIONS, TOPIC, WALL_MS, BrokenPromiseError, Sent
from tests.sim.spool_world import DIRECTORY, SpoolWorld, number_of
from tests.sim.transaction_cluster import TransactionCluster
from tests.sim.transaction_world import visible

POSITIONS = "positions"
DAY_MS = 24 * 3_600_000
OUTAGE_MS = 30 * DAY_MS
"""Longer than brokers remember producers, coordinators transactional ids, and groups offsets."""
TRANSACTION_TIMEOUT_MS = 5_000


class SpoolTransactionCluster(TransactionCluster):
    def __init__(self, *, protocol: int, max_message_bytes: int) -> None:
        super().__init__({TOPIC: PARTITIONS, POSITIONS: 1}, protocol=protocol, max_message_bytes=max_message_bytes)
        self.versions |= {
            ApiKey.LIST_OFFSETS: (1, 11),
            ApiKey.CREATE_TOPICS: (2, 7),
            ApiKey.FETCH: (4, 12),
        }

    def execute(self, request: Delivered) -> bytes | object | None:
        header, position = decode_request_header(memoryview(request.frame))
        if header.api_key != ApiKey.FETCH:
            return super().execute(request)
        asked = decode_fetch_request(memoryview(request.frame), position, header.api_version)
        (topic,) = asked.topics
        (one,) = topic.partitions
        partition = self.partitions[TopicPartition(topic.name, one.index)]
        if partition.leader != request.node_id:
            answer = FetchedPartition(one.index, NOT_LEADER_OR_FOLLOWER, -1)
        else:
            answer = FetchedPartition(
                one.index, 0, partition.committed_end, records=log_of(partition, one.fetch_offset)
            )
        response = FetchResponse([FetchedTopic(topic.name, None, [answer])])
        body = b"".join(bytes(part) for part in encode_fetch_response(header.api_version, response))
        return encode_response(header, body)

    def _answer(self, node_id: int, api_key: ApiKey, version: int, asked: Message) -> Message:
        if api_key == ApiKey.CREATE_TOPICS:
            return {"topics": [{"name": topic["name"], "error_code": 0} for topic in asked["topics"]]}
        if api_key == ApiKey.LIST_OFFSETS:
            return self._list_offsets(node_id, asked)
        return super()._answer(node_id, api_key, version, asked)

    def _list_offsets(self, node_id: int, asked: Message) -> Message:
        (topic,) = asked["topics"]
        (one,) = topic["partitions"]
        partition = self.partitions[TopicPartition(topic["name"], one["partition_index"])]
        answer = {"partition_index": one["partition_index"], "error_code": 0, "offset": 0}
        if partition.leader != node_id:
            answer["error_code"] = NOT_LEADER_OR_FOLLOWER
        elif one["timestamp"] == -1:
            answer["offset"] = partition.committed_end
        return {"topics": [{"name": topic["name"], "partitions": [answer]}]}


def log_of(partition: ModelPartition, first_offset: int) -> bytes:
    """The model's log as bytes. Markers take no offset in it, so they come with the offset of what follows."""
    return b"".join(
        _bytes_of(stored) for stored in partition.log if stored.end_offset > first_offset or not stored.batch.records
    )


def _bytes_of(stored: StoredBatch) -> bytes:
    batch = stored.batch
    if batch.is_commit is not None:
        marker = ControlMarker(batch.is_commit, 0)
        who = {"producer_id": batch.producer_id, "producer_epoch": batch.epoch}
        return bytes(build_control_batch(marker, **who, timestamp_ms=WALL_MS, base_offset=stored.base_offset))
    records = [(WALL_MS, None, value, ()) for value in batch.records]
    return bytes(
        build_batch(
            records,
            base_offset=stored.base_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            transactional=True,
        )
    )


class TellingTransactionFeeder(TransactionFeeder):
    """Tells the world which records failed for good; a crash may come before that is settled."""

    given_up: set[tuple[TopicPartition, int]]

    def settled(self, batch: ProducerBatch) -> None:
        before = len(self._failed)
        super().settled(batch)
        if len(self._failed) > before:
            place = TopicPartition(batch.topic, batch.partition)
            for record in decode_records(batch.sealed(compression.NONE, None, True)):
                self.given_up.add((place, number_of(record.value)))


class SpoolTransactionWorld(SpoolWorld):
    cluster: SpoolTransactionCluster

    def __init__(self, *, protocol: int = 2, is_durable: bool = False, max_message_bytes: int = 1_000) -> None:
        self.spool_ids = 0
        super().__init__(
            is_durable=is_durable,
            cluster=SpoolTransactionCluster(protocol=protocol, max_message_bytes=max_message_bytes),
            transactional_id="m",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            spool_positions_topic=POSITIONS,
        )
        self.requests_arrive_late = protocol == 2  # a request that comes very late is protocol 1's known weakness

    def _new_cluster(self) -> ModelCluster:
        return self.cluster

    def _new_spooled_sender(self, sender: SenderCore, recovery: Recovery) -> SpooledSender:
        self.spool.open_for("m", POSITIONS)
        left = recovery.open_partitions if self.spool.identity is None else without_doubts(recovery.open_partitions)
        self.feeder = self._new_feeder(TellingTransactionFeeder)
        self.spool_ids += 1
        settings = TransactingSettings("m", TRANSACTION_TIMEOUT_MS, POSITIONS, f"s{self.spool_ids}")
        return SpooledSender(
            sender,
            self.spool,
            self.feeder,
            Resolver(sender, self.accumulator, left, lambda: WALL_MS + self.now_ms),
            directory=DIRECTORY,
            when_unknown="refuse",
            on_news=lambda: None,
            new_transactor=lambda feed, on_unknown: Transactor(
                settings,
                sender,
                self.accumulator,
                self.spool,
                self.feeder,  # type: ignore[arg-type]
                feed=feed,
                on_unknown=on_unknown,
                on_news=lambda: None,
                wall_clock_ms=lambda: WALL_MS + self.now_ms,
                jitter=self._jitter,
            ),
        )

    # --- what happens -----------------------------------------------------------------------------------------------

    def kill(self, requests_arrive: bool = True, power_seed: int | None = None) -> None:
        super().kill(requests_arrive and self.requests_arrive_late, power_seed)

    def cut(self, index: int, requests_arrive: bool) -> None:
        super().cut(index, requests_arrive and self.requests_arrive_late)

    def _ends_a_life(self, fatal: Exception | None) -> bool:
        """A request of an earlier life that takes the id over, late, is another producer to this one."""
        return isinstance(fatal, TransactionalProducerFenced)

    def outage(self) -> None:
        """Nobody reaches anybody, for so long that everything that can expire does."""
        for line in self.lines:
            line.end(requests_arrive=False)
        self.cluster.stragglers.clear()
        self._notice_ended()
        self.now_ms += OUTAGE_MS
        self.cluster.tick(self.now_ms)
        self.cluster.write_markers()
        self.cluster.tick(self.now_ms)
        for partition in self.cluster.partitions.values():
            for producer_id in {stored.batch.producer_id for stored in partition.log}:
                partition.forget_producer(producer_id)
        self._poll()

    def pass_time(self, duration_ms: int, *, healthy: bool = False) -> None:
        for _ in range(max(1, duration_ms // 50)):
            if healthy:
                self.cluster.write_markers()
            super().pass_time(min(50, duration_ms), healthy=healthy)
            self.cluster.tick(self.now_ms)

    def finish(self) -> None:
        self.storage.heal()
        self.heal()
        self.set_flushing(False)
        for _ in range(100):
            self.pass_time(1_000, healthy=True)
            if self.core.fatal is not None:
                return
            if not any(self.spool.unsettled()):
                break
        while self.cluster.stragglers:
            self.deliver_straggler(0)


# --- promises -------------------------------------------------------------------------------------------------------


def committed_numbers(world: SpoolTransactionWorld) -> dict[TopicPartition, list[int]]:
    return {
        place: [number_of(value) for value in values]
        for place, values in visible(world.cluster).items()
        if place.topic == TOPIC
    }


def nothing_is_committed_twice_or_out_of_order(world: SpoolTransactionWorld) -> None:
    for place, numbers in committed_numbers(world).items():
        twice = [number for number, count in Counter(numbers).items() if count > 1]
        if twice:
            raise BrokenPromiseError(f"{place}: {twice} are committed twice, in {numbers}")
        wrong = [pair for pair in pairwise(numbers) if pair[0] > pair[1]]
        if wrong:
            raise BrokenPromiseError(f"{place}: {wrong} are out of order, in {numbers}")


def every_accepted_record_is_committed_or_reported(world: SpoolTransactionWorld) -> None:
    committed = {(place, number) for place, numbers in committed_numbers(world).items() for number in numbers}
    missing = [
        f"{sent.partition}#{sent.number}"
        for sent in world.accepted
        if (sent.partition, sent.number) not in committed | world.given_up
    ]
    if missing:
        raise BrokenPromiseError(f"{missing} were accepted, and are neither committed nor reported as failed")


def only_what_a_leader_refused_is_given_up(world: SpoolTransactionWorld) -> None:
    """A record that shared a transaction with one that is too large goes out again in the next."""
    innocent = [
        f"{sent.partition}#{sent.number}"
        for sent in world.accepted
        if (sent.partition, sent.number) in world.given_up and sent.value not in world.cluster.refused_for_good
    ]
    if innocent:
        raise BrokenPromiseError(f"{innocent} were given up, and no leader had refused them")


def what_was_told_is_true(world: SpoolTransactionWorld) -> None:
    """Delivered means committed, at the offset that was told."""
    for sent in world.accepted:
        if sent.is_delivered:
            _is_at_its_offset(world, sent)


def _is_at_its_offset(world: SpoolTransactionWorld, sent: Sent) -> None:
    outcomes = world.cluster.partitions[sent.partition].outcomes()
    if sent.offset < 0:
        return
    value, is_committed = outcomes[sent.offset]
    if value != sent.value or not is_committed:
        raise BrokenPromiseError(f"{sent} is not where its user was told, but {value!r} ({is_committed})")
