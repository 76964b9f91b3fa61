"""Which batches leave in which Produce request, under which number. What becomes of them, `Fates` decides.

Owns the rings of queues by leader, and the count of batches that are under way to each broker. A batch is numbered and
sealed once, when it first leaves; where a journal keeps numbers, nothing leaves before it has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import UNNUMBERED, ProducerBatch
from oncelog.client.fates import Fates
from oncelog.client.idempotence import Idempotence
from oncelog.client.metadata import NO_LEADER
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.node_ring import NodeRing
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.errors import OncelogError
from oncelog.types import NO_OFFSET, NO_TIMESTAMP
from oncelog.wire.api import ApiKey
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

MAX_POLL_MS = 1_000  # the longest sleep

CROWD = 100
"""So many partitions of one broker wait for each other: a batch costs about the same whether it holds five records or
five hundred, so while the broker has something to do, those that can grow are left to it."""

Drained = list[tuple[PartitionQueue, ProducerBatch]]

PRODUCE = ApiKey.PRODUCE
_new: Any = tuple.__new__  # of a NamedTuple, without the call of its Python constructor


class ProduceTag:
    """One Produce request in flight: its batches, until the answer speaks of them."""

    __slots__ = ("_batches", "count", "node_id")

    def __init__(self, node_id: int, drained: Drained) -> None:
        self.node_id = node_id
        self.count = len(drained)
        self._batches: dict[Any, dict[int, tuple[PartitionQueue, ProducerBatch]]] = {}
        """By the names of their topics, and by the numbers of their ids: newer brokers answer with those."""
        for one in drained:
            queue = one[0]
            found = self._batches.get(queue.topic)
            if found is None:
                found = self._batches[queue.topic] = {}
                if queue.topic_id is not None:
                    self._batches[queue.topic_id.int] = found
            found[queue.index] = one

    def of_topic(self, topic: Any) -> dict[int, tuple[PartitionQueue, ProducerBatch]]:
        """The batches that the answers for this `ProducedTopic` speak of, by partition; to be taken out one by one."""
        name, topic_id, _ = topic
        found = self._batches.get(name if name or topic_id is None else topic_id.int)
        return {} if found is None else found

    def rest(self) -> Drained:
        """Those that no answer spoke of."""
        by_topic = {id(batches): batches for batches in self._batches.values() if batches}
        return [one for batches in by_topic.values() for one in batches.values()]


class Dispatch:
    __slots__ = (
        "_accumulator", "_acks", "_codec", "_counters", "_fates", "_idempotence", "_level", "_linger_ms",
        "_max_in_flight", "_max_request_size", "_metadata", "_network", "_request_timeout_ms", "_rings", "_under_way",
    )  # fmt: skip

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        network: Network,
        idempotence: Idempotence | None,
        metadata: MetadataCache,
        counters: ProducerCounters,
        fates: Fates,
    ) -> None:
        self._acks = config.acks
        self._codec = config.compression_codec
        self._level = config.compression_level
        self._linger_ms = config.linger_ms
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._max_request_size = config.max_request_size
        self._request_timeout_ms = config.request_timeout_ms
        self._accumulator = accumulator
        self._network = network
        self._idempotence = idempotence
        self._metadata = metadata
        self._counters = counters
        self._fates = fates
        self._rings: dict[int, NodeRing] = {}
        self._under_way: dict[int, int] = {}
        """Batches that are not answered yet, by broker."""

    def arrange(self, queues: Iterable[PartitionQueue]) -> None:
        """Which broker leads which queue. A ring keeps its cursor, so that fairness survives a refresh."""
        rings: dict[int, NodeRing] = {}
        for queue in queues:
            ring = rings.get(queue.leader)
            if ring is None:
                ring = rings[queue.leader] = NodeRing()
                ring.cursor = self._rings[queue.leader].cursor if queue.leader in self._rings else 0
            ring.queues.append(queue)
        self._rings = rings

    def ended(self, tag: ProduceTag) -> None:
        """The request is answered, or lost."""
        self._under_way[tag.node_id] -= tag.count

    def send_ready(self, now_ms: int, is_urgent: bool) -> int:
        """Send what is ready to whoever is ready; returns when the next batch will be. What is urgent does not linger
        for more records."""
        wake_ms = now_ms + MAX_POLL_MS
        if self._fates.fatal is not None:
            return wake_ms
        for node_id, ring in self._rings.items():
            if node_id == NO_LEADER:
                self._await_leaders(ring, now_ms)
            else:
                wake_ms = min(wake_ms, self._serve(node_id, ring, now_ms, is_urgent))
        return wake_ms

    def _serve(self, node_id: int, ring: NodeRing, now_ms: int, is_urgent: bool) -> int:
        """One broker: as many requests as it may have. Returns when its next batch is ready."""
        network = self._network
        idle_ms = wake_ms = now_ms + MAX_POLL_MS
        while network.is_ready(node_id, now_ms):
            ripe_bytes = self._accumulator.ripe_bytes(len(ring.queues)) if len(ring.queues) >= CROWD else 0
            drained, ready_ms = self._drain(ring, now_ms, idle_ms, is_urgent, ripe_bytes)
            if not drained and ripe_bytes and not self._under_way.get(node_id):
                drained, ready_ms = self._drain(ring, now_ms, idle_ms, is_urgent, 0)
            if not drained:
                return min(wake_ms, ready_ms)
            self.send(node_id, drained, now_ms)
            if self._acks == 0:
                wake_ms = now_ms  # no answer will tell that there is room for the next
        if not network.is_connected(node_id) and ring.has_batches():
            network.connect(node_id, now_ms)
        return wake_ms

    def _drain(
        self, ring: NodeRing, now_ms: int, idle_ms: int, is_urgent: bool, ripe_bytes: int
    ) -> tuple[Drained, int]:
        return ring.drain(
            now_ms,
            idle_ms,
            self._linger_ms,
            self._max_request_size,
            is_urgent,
            ripe_bytes,
            self.may_send,
            self._accumulator.take,
        )

    def send_alone(self, node_id: int, queue: PartitionQueue, now_ms: int) -> bool:
        """The queue's first batch in a request of its own, if nothing is against it."""
        head = queue.head
        assert head is not None
        if head.attempts or self._linger_ms or self._acks == 0 or self._codec or head.has_callbacks:
            return False
        if not queue.has_stored or not self.may_send(queue, head, now_ms):
            return False
        self.send(node_id, [(queue, self._accumulator.take(queue))], now_ms)
        return True

    def _await_leaders(self, ring: NodeRing, now_ms: int) -> None:
        for queue in ring.queues:
            if queue.head is not None:
                self._metadata.want(queue.topic, now_ms)
                self._metadata.mark_stale()

    def may_send(self, queue: PartitionQueue, batch: ProducerBatch, now_ms: int) -> bool:
        transaction = self._fates.transaction
        if transaction is not None and not transaction.may_send(queue, now_ms):
            return False
        if self._idempotence is not None:
            return self._idempotence.may_send(queue, batch)
        # Without numbers only waiting keeps the order, and only a user who allows one request at a time asked for it.
        return self._max_in_flight > 1 or not queue.unsettled

    def send(self, node_id: int, drained: Drained, now_ms: int) -> None:
        """One request with these batches, which are in no queue any more."""
        transaction = self._fates.transaction
        fresh = []
        for queue, batch in drained:
            if self._prepare(queue, batch):
                fresh.append(batch)
        if self._fates.journal is not None and not self._write_down(drained, fresh, now_ms):
            return
        transactional_id = last_version = None
        if transaction is not None:
            transactional_id, last_version = transaction.sends(now_ms), transaction.max_produce_version()
        topics = self._sealed(drained, transaction is not None, now_ms)
        request = _new(ProduceRequest, (transactional_id, self._acks, self._request_timeout_ms, topics))
        is_answered = self._acks != 0
        if is_answered:
            self._under_way[node_id] = self._under_way.get(node_id, 0) + len(drained)
        self._counters.requests_sent += 1
        self._network.send(
            node_id,
            PRODUCE,
            request,
            now_ms,
            tag=ProduceTag(node_id, drained),
            answered=is_answered,
            max_version=last_version,
        )
        if not is_answered:
            for queue, batch in drained:
                self._fates.store(queue, batch, NO_OFFSET, NO_TIMESTAMP)

    def _prepare(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether it has its number from now on."""
        idempotence = self._idempotence
        is_fresh = idempotence is not None and not batch.is_numbered
        batch.attempts += 1
        batch.is_in_flight = True
        if batch.ordinal == UNNUMBERED:
            batch.ordinal = queue.next_ordinal
            queue.next_ordinal += 1
        if idempotence is None:
            queue.unsettled.append(batch)
            batch.was_first_in_line = queue.unsettled[0] is batch
            return False
        if is_fresh:
            idempotence.number(queue, batch)
        batch.was_first_in_line = idempotence.next_in_line(queue) is batch
        return is_fresh

    def _write_down(self, drained: Drained, fresh: list[ProducerBatch], now_ms: int) -> bool:
        """Durable first, sent afterwards. Where the numbers cannot be kept, nothing leaves, and it is tried again."""
        journal = self._fates.journal
        assert journal is not None
        assert self._idempotence is not None
        try:
            journal.numbered([batch for _, batch in drained])
        except OncelogError as error:
            for queue, batch in drained:
                batch.is_in_flight = False
                if batch in fresh:
                    self._idempotence.take_back(queue, batch)
                self._fates.retry(queue, batch, error, now_ms)
            return False
        return True

    def _sealed(self, drained: Drained, is_transactional: bool, now_ms: int) -> list[ProduceTopic]:
        """The batches as the request carries them."""
        topics: dict[str, ProduceTopic] = {}
        records = wire_bytes = raw_bytes = queued_ms = most_bytes = longest_ms = 0
        for queue, batch in drained:
            topic = topics.get(queue.topic)
            if topic is None:
                topic = topics[queue.topic] = _new(ProduceTopic, (queue.topic, queue.topic_id, []))
                self._metadata.want(queue.topic, now_ms)
            partitions: list[Any] = topic.partitions  # type: ignore[assignment]
            sealed = batch.sealed(self._codec, self._level, is_transactional)
            partitions.append(_new(ProducePartition, (queue.index, sealed)))
            size_bytes, waited_ms = len(sealed), now_ms - batch.created_ms
            records += batch.record_count
            wire_bytes += size_bytes
            raw_bytes += batch.size_bytes
            queued_ms += waited_ms
            most_bytes = max(most_bytes, size_bytes)
            longest_ms = max(longest_ms, waited_ms)
            if batch.attempts > 1:
                self._counters.records_retried += batch.record_count
        self._counters.batches_left(len(drained), records, wire_bytes, raw_bytes, queued_ms)
        self._counters.at_most(most_bytes, longest_ms)
        return list(topics.values())
