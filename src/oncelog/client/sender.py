"""The producer's sender, without I/O: takes ready batches, forms requests, and decides what each answer means.

A driver calls `poll` when something may be due and `handle` for each event of the network; `poll` says when it wants to
be called next. All state here belongs to the driver's thread. What users' threads touch lies in the `Accumulator`, and
in the few attributes that a shell sets to ask for something (`awaited_topics`, `close_at_ms`).

The shell is told of two things: a batch whose fate is known (`on_settled`, to run callbacks), and news that somebody
may wait for (`on_news`: memory came free, a topic became known, the producer failed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import UNNUMBERED, ProducerBatch
from oncelog.client.cluster import Cluster
from oncelog.client.idempotence import Idempotence, Identity
from oncelog.client.metadata import NO_LEADER, TopicMetadata
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Answered, Event, Lost, LostKind, Network
from oncelog.client.node_ring import NodeRing
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import DeliveryFailed, DeliveryTimedOut, ProducerClosed
from oncelog.client.transaction.conversation import CONTENTION_BACKOFF_MS
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import TransactionSettings
from oncelog.client.verdict import Verdict, verdict_of
from oncelog.errors import (
    NONE,
    ConcurrentTransactions,
    KafkaError,
    NotEnoughReplicas,
    OncelogError,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.produce import ProducedPartition, ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic

MAX_POLL_MS = 1_000  # the longest sleep
EXPIRY_PERIOD_MS = 50  # how exactly `delivery.timeout.ms` is kept
MAX_BACKOFF_DOUBLINGS = 16
CROWD = 100
"""With so many batches under way to a broker, others that are not full wait for an answer: a batch costs about the same
whether it holds five records or five hundred, so a producer to a thousand partitions must let them fill."""

CONTENDED = (ConcurrentTransactions, NotEnoughReplicas)
"""What leaders say, the second one to older clients, while a coordinator is busy with the transaction: for a moment."""

PLACED = (Verdict.STORED, Verdict.STORED_EARLIER)


class BatchJournal(Protocol):
    """Remembers numbered batches across a crash of the producer's process."""

    def numbered(self, batches: Sequence[ProducerBatch]) -> None:
        """Their bytes leave when this returns. Raises OncelogError if the numbers could not be kept: then they may not.
        Batches that go out again are among them; their numbers are known."""

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """The batch was too large, and goes on in parts."""

    def settled(self, batch: ProducerBatch) -> None: ...


class ProduceTag:
    """One Produce request in flight."""

    __slots__ = ("batches", "names", "node_id")

    def __init__(self, node_id: int, batches: dict[tuple[str, int], tuple[PartitionQueue, ProducerBatch]]) -> None:
        self.node_id = node_id
        self.batches = batches
        self.names = {queue.topic_id: queue.topic for queue, _ in batches.values()}


class SenderCore:
    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        network: Network,
        counters: ProducerCounters,
        *,
        jitter: Callable[[], float],
        on_settled: Callable[[ProducerBatch], None],
        on_news: Callable[[], None],
    ) -> None:
        self.network = network
        self.idempotence = Idempotence() if config.enable_idempotence else None
        self.metadata = MetadataCache(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_idle_ms,
            retry_backoff_ms=config.retry_backoff_ms,
        )
        self.journal: BatchJournal | None = None
        self.fatal: Exception | None = None
        """Why nothing can be sent any more."""
        self.awaited_topics: dict[str, int] = {}
        """Topics that callers wait to learn about, and how many do."""
        self.close_at_ms: int | None = None
        """When set: finish what was accepted, and give up on the rest then."""
        self._config = config
        self._codec = config.compression_codec
        self._level = config.compression_level
        self._accumulator = accumulator
        self._counters = counters
        self._jitter = jitter
        self._on_settled = on_settled
        self._on_news = on_news
        self._rings: dict[int, NodeRing] = {}
        self._cluster = Cluster(network, self.metadata, config.bootstrap_servers)
        self.transaction = self._new_transaction()
        self._asking_id = False
        self._id_attempts = 0
        self._ask_id_at_ms = 0
        self._expire_at_ms = 0
        self._under_way: dict[int, int] = {}
        """Batches that are not answered yet, by broker."""
        self._has_news = False
        self._untold: dict[PartitionQueue, list[ProducerBatch]] = {}
        """Batches whose fate is known before that of one ahead of them; at most a window's worth for each queue."""
        self._is_finished = False

    def _new_transaction(self) -> TransactionCore | None:
        config = self._config
        if config.transactional_id is None:
            return None
        assert self.idempotence is not None
        settings = TransactionSettings(
            config.transactional_id,
            config.transaction_timeout_ms,
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
        )
        return TransactionCore(settings, self.network, self._accumulator, self.idempotence, self, self._jitter)

    # --- what a driver calls ----------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    def poll(self, now_ms: int) -> int:
        self._counters.tick(now_ms)
        self._expire(now_ms)
        self._refresh_metadata(now_ms)
        self._bump_if_quiet()
        self._ask_for_id(now_ms)
        wake_ms = self._send_ready(now_ms)
        if self.transaction is not None:
            wake_ms = min(wake_ms, self.transaction.poll(now_ms) or wake_ms)
        if self.close_at_ms is not None:
            self._close_if_done(now_ms)
        if self._has_news:  # of memory that came free by time alone, or because nobody answers (acks=0)
            self._tell_news()
        return self._sleep_ms(now_ms, wake_ms)

    def handle(self, event: Event, now_ms: int) -> None:
        tag = event.tag
        if isinstance(tag, ProduceTag):
            self._under_way[tag.node_id] -= len(tag.batches)
            if isinstance(event, Answered):
                self._produced(tag, event, now_ms)
            else:
                self._lost(tag, event, now_ms)
        elif tag == ApiKey.METADATA:
            self._metadata_arrived(event, now_ms)
        elif self.transaction is None:
            self._id_arrived(event, now_ms)
        else:
            self.transaction.handle(event, now_ms)

    def failed(self, error: BaseException) -> None:
        """We have a bug: nothing can be sent any more, and everybody who waits must know."""
        self._is_finished = True  # before anybody hears of it, and asks
        self._accumulator.close()
        self.give_up(ProducerClosed(f"the producer's sender broke and stopped: {error!r}"))

    def adopt(self, batches: Sequence[ProducerBatch]) -> None:
        """Batches of an earlier process that may be stored, numbered as they were, each partition's in order. They go
        first; a new producer id follows when their fate is known."""
        assert self.idempotence is not None
        for batch in batches:
            queue = self._accumulator.topics[batch.topic].queues[batch.partition]
            batch.ordinal = queue.next_ordinal
            queue.next_ordinal += 1
            queue.next_position = batch.position + batch.record_count
            queue.unsettled.append(batch)
            self._accumulator.adopt(queue, batch)
            self.idempotence.adopt(Identity(batch.producer_id, batch.producer_epoch))

    def begin_anew(self) -> TransactionCore:
        """After transactions have failed as a whole: as if none had been begun, with nothing accepted. Only when no
        broker has a batch."""
        assert not self.is_in_flight()
        transaction = self._new_transaction()
        assert transaction is not None
        self.fatal = None
        self.transaction = transaction
        return transaction

    def all_queues(self) -> Iterator[PartitionQueue]:
        for topic in list(self._accumulator.topics.values()):
            yield from topic.queues

    # --- metadata ---------------------------------------------------------------------------------------------

    def _refresh_metadata(self, now_ms: int) -> None:
        for topic in list(self.awaited_topics):
            self.metadata.want(topic, now_ms)
        self._cluster.refresh(now_ms)

    def _metadata_arrived(self, event: Event, now_ms: int) -> None:
        told = self._cluster.arrived(event, now_ms)
        if told is None:
            return
        for topic in told.topics.values():
            if topic.is_usable:
                self._learn_topic(topic)
        self._arrange_rings()
        self._tell_news()

    def _learn_topic(self, topic: TopicMetadata) -> None:
        """A leader that is not among the brokers is none: who it is must be asked again."""
        nodes = {node.node_id for node in self._cluster.nodes}
        leaders = ((one, one.leader if one.leader in nodes else NO_LEADER) for one in topic.partitions)
        self._accumulator.learn_partitions(
            topic.name, ((one.index, topic.topic_id, leader, one.leader_epoch) for one, leader in leaders)
        )

    def _arrange_rings(self) -> None:
        """Which broker leads which queue. A ring keeps its cursor, so that fairness survives a refresh."""
        rings: dict[int, NodeRing] = {}
        for queue in self.all_queues():
            ring = rings.get(queue.leader)
            if ring is None:
                ring = rings[queue.leader] = NodeRing()
                ring.cursor = self._rings[queue.leader].cursor if queue.leader in self._rings else 0
            ring.queues.append(queue)
        self._rings = rings

    # --- producer id ------------------------------------------------------------------------------------------

    def _ask_for_id(self, now_ms: int) -> None:
        if not self._wants_id or now_ms < self._ask_id_at_ms:
            return
        node_id = self._cluster.any_node(now_ms)
        if node_id is None:
            return
        question: Message = {
            "transactional_id": None,
            "transaction_timeout_ms": self._config.transaction_timeout_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
        }
        self.network.send(node_id, ApiKey.INIT_PRODUCER_ID, question, now_ms, tag=ApiKey.INIT_PRODUCER_ID)
        self._asking_id = True

    @property
    def _wants_id(self) -> bool:
        """A transactional producer has its id from its coordinator."""
        if self.idempotence is None or self.transaction is not None or self._asking_id or self.fatal is not None:
            return False
        return self.idempotence.wants_id and bool(self._accumulator.incomplete)

    def _id_arrived(self, event: Event, now_ms: int) -> None:
        assert self.idempotence is not None
        self._asking_id = False
        if isinstance(event, Answered) and event.body["error_code"] == NONE:
            self._id_attempts = 0
            self.idempotence.learn(event.body["producer_id"], event.body["producer_epoch"])
            return
        self._id_attempts += 1
        self._ask_id_at_ms = now_ms + self._backoff_ms(self._id_attempts)
        if isinstance(event, Answered):
            error = error_for_code(event.body["error_code"])
            if not error.retriable:
                self.give_up(error)
        elif event.kind is LostKind.UNSUPPORTED:
            self.give_up(UnsupportedVersion(f"{event.reason}; idempotence needs it, or set enable.idempotence=false"))

    def _bump_if_quiet(self) -> None:
        if self.idempotence is None or self.transaction is not None:
            return
        if self.idempotence.bump(self.all_queues()):
            self._counters.epoch_bumps += 1

    # --- sending ----------------------------------------------------------------------------------------------

    def _send_ready(self, now_ms: int) -> int:
        """Send what is ready to whoever is ready; returns when the next batch will be."""
        config = self._config
        wake_ms = now_ms + MAX_POLL_MS
        if self.fatal is not None:
            return wake_ms
        for node_id, ring in self._rings.items():
            if node_id == NO_LEADER:
                self._await_leaders(ring, now_ms)
                continue
            while True:
                if not self.network.is_ready(node_id, now_ms):
                    if not self.network.is_connected(node_id) and any(queue.batches for queue in ring.queues):
                        self.network.connect(node_id, now_ms)
                    break
                is_crowded = self._under_way.get(node_id, 0) >= CROWD
                batches, ready_ms = ring.drain(
                    now_ms,
                    now_ms + MAX_POLL_MS,
                    config.linger_ms,
                    config.max_request_size,
                    self._is_urgent,
                    is_crowded,
                    self._may_send,
                    self._accumulator.take,
                )
                if not batches:
                    wake_ms = min(wake_ms, ready_ms)
                    break
                self._send(node_id, batches, now_ms)
                if config.acks == 0:
                    wake_ms = now_ms  # no answer will tell that there is room for the next
        return wake_ms

    def _await_leaders(self, ring: NodeRing, now_ms: int) -> None:
        for queue in ring.queues:
            if queue.batches:
                self.metadata.want(queue.topic, now_ms)
                self.metadata.mark_stale()

    @property
    def _is_urgent(self) -> bool:
        """Nobody lingers for more records."""
        accumulator = self._accumulator
        return bool(accumulator.flushing or accumulator.are_waiting_for_memory or self.close_at_ms is not None)

    def _may_send(self, queue: PartitionQueue, batch: ProducerBatch, now_ms: int) -> bool:
        if self.transaction is not None and not self.transaction.may_send(queue, now_ms):
            return False
        if self.idempotence is not None:
            return self.idempotence.may_send(queue, batch)
        # Without numbers only waiting keeps the order, and only a user who allows one request at a time asked for it.
        return self._config.max_in_flight_requests_per_connection > 1 or not queue.unsettled

    def _send(self, node_id: int, drained: list[tuple[PartitionQueue, ProducerBatch]], now_ms: int) -> None:
        topics: dict[str, ProduceTopic] = {}
        fresh = [batch for queue, batch in drained if self._prepare(queue, batch)]
        if self.journal is not None and not self._write_down(drained, fresh, now_ms):
            return
        for queue, batch in drained:
            topic = topics.get(queue.topic)
            if topic is None:
                topic = topics[queue.topic] = ProduceTopic(queue.topic, queue.topic_id, [])
                self.metadata.want(queue.topic, now_ms)
            partitions: list[Any] = topic.partitions  # type: ignore[assignment]
            records = batch.sealed(self._codec, self._level, self.transaction is not None)
            partitions.append(ProducePartition(queue.index, memoryview(records)))
            self._count_sent(batch, now_ms)
        acks = self._config.acks
        transactional_id = last_version = None
        if self.transaction is not None:
            transactional_id, last_version = self.transaction.sends(now_ms), self.transaction.max_produce_version()
        request = ProduceRequest(transactional_id, acks, self._config.request_timeout_ms, list(topics.values()))
        tag = ProduceTag(node_id, {(queue.topic, queue.index): (queue, batch) for queue, batch in drained})
        if acks != 0:
            self._under_way[node_id] = self._under_way.get(node_id, 0) + len(drained)
        self._counters.requests_sent += 1
        self.network.send(
            node_id, ApiKey.PRODUCE, request, now_ms, tag=tag, answered=acks != 0, max_version=last_version
        )
        if acks == 0:
            for queue, batch in drained:
                self._store(queue, batch, NO_OFFSET, NO_TIMESTAMP)

    def _prepare(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether it has its number from now on."""
        is_fresh = self.idempotence is not None and not batch.is_numbered
        batch.attempts += 1
        batch.is_in_flight = True
        if batch.ordinal == UNNUMBERED:
            batch.ordinal = queue.next_ordinal
            queue.next_ordinal += 1
        if self.idempotence is None:
            queue.unsettled.append(batch)
        elif is_fresh:
            self.idempotence.number(queue, batch)
        first = queue.unsettled[0] if self.idempotence is None else self.idempotence.next_in_line(queue)
        batch.was_first_in_line = first is batch
        return is_fresh

    def _write_down(
        self, drained: list[tuple[PartitionQueue, ProducerBatch]], fresh: list[ProducerBatch], now_ms: int
    ) -> bool:
        """Durable first, sent afterwards. Where the numbers cannot be kept, nothing leaves, and it is tried again."""
        assert self.journal is not None
        assert self.idempotence is not None
        try:
            self.journal.numbered([batch for _, batch in drained])
        except OncelogError as error:
            for queue, batch in drained:
                batch.is_in_flight = False
                if batch in fresh:
                    self.idempotence.take_back(queue, batch)
                self._retry(queue, batch, error, now_ms)
            return False
        return True

    def _count_sent(self, batch: ProducerBatch, now_ms: int) -> None:
        if batch.attempts > 1:
            self._counters.records_retried += batch.record_count
        assert batch.buffer is not None
        self._counters.batch_sent(batch.record_count, len(batch.buffer), batch.size_bytes, now_ms - batch.created_ms)

    # --- answers ----------------------------------------------------------------------------------------------

    def _produced(self, tag: ProduceTag, event: Answered, now_ms: int) -> None:
        response: ProduceResponse = event.body
        self._counters.request_answered(now_ms - event.sent_ms, response.throttle_ms)
        if response.throttle_ms > 0:
            self.network.throttle(event.node_id, now_ms + response.throttle_ms)
        unanswered = dict(tag.batches)
        for topic in response.topics:
            name = topic.name or tag.names.get(topic.topic_id, "")
            for answer in topic.partitions:
                found = unanswered.pop((name, answer.index), None)
                if found is not None:
                    found[1].is_in_flight = False
                    self._judge(*found, answer, now_ms)
        for queue, batch in unanswered.values():
            batch.is_in_flight = False
            silence = f"{queue.topic}-{queue.index}: the broker's answer left this partition out"
            self._uncertain(queue, batch, DeliveryFailed(silence, may_be_written=True), now_ms)
        self._tell_news()

    def _lost(self, tag: ProduceTag, event: Lost, now_ms: int) -> None:
        self.metadata.mark_stale()
        for queue, batch in tag.batches.values():
            batch.is_in_flight = False
            if event.kind is LostKind.UNSUPPORTED:
                self._fail(queue, batch, UnsupportedVersion(event.reason))
            elif event.kind is LostKind.NEVER_SENT:
                self._retry(queue, batch, DeliveryFailed(event.reason, may_be_written=batch.may_be_written), now_ms)
            else:
                self._uncertain(queue, batch, DeliveryFailed(event.reason, may_be_written=True), now_ms)
        self._tell_news()

    def _judge(self, queue: PartitionQueue, batch: ProducerBatch, answer: ProducedPartition, now_ms: int) -> None:
        verdict = verdict_of(answer.error_code)
        idempotence = self.idempotence
        if verdict is Verdict.OUT_OF_ORDER and idempotence is not None and idempotence.is_known_as_stored(queue, batch):
            verdict = Verdict.STORED_EARLIER
        if verdict in PLACED:
            if self.transaction is not None:
                self.transaction.records_stored(now_ms)
            self._counters.duplicates_acknowledged += verdict is Verdict.STORED_EARLIER
            self._store(queue, batch, answer.base_offset, answer.log_append_time_ms)
            return
        error = _error_of(queue, answer)
        if error.stale_metadata:
            self._learn_leader(queue, answer)
        if verdict is Verdict.UNCERTAIN:
            self._uncertain(queue, batch, error, now_ms)
        elif verdict is Verdict.REFUSED:
            self._retry(queue, batch, error, now_ms)
        elif verdict is Verdict.TOO_LARGE:
            self._too_large(queue, batch, error)
        elif verdict is Verdict.BROKEN:
            batch.may_be_written = True
            self._fail(queue, batch, error)
        elif verdict is Verdict.INVALID or self.idempotence is None:
            self._fail(queue, batch, error)
        else:
            self._renumber(queue, batch, verdict, error, now_ms)

    def _renumber(
        self, queue: PartitionQueue, batch: ProducerBatch, verdict: Verdict, error: KafkaError, now_ms: int
    ) -> None:
        """The broker's count differs from ours, so counting must start again."""
        assert self.idempotence is not None
        if verdict is Verdict.OUT_OF_ORDER and not self.idempotence.is_gap(queue, batch):
            self._retry(queue, batch, error, now_ms)
            return
        if self.transaction is not None:  # its coordinator gives the next epoch, after an abort
            self._fail(queue, batch, error)
            return
        is_in_doubt = self.idempotence.is_in_doubt(queue, batch)
        if verdict is Verdict.OUT_OF_ORDER and batch.may_be_written and not is_in_doubt:
            self._doubt(queue, batch, error, now_ms)
            return
        self.idempotence.want_bump(str(error), new_id=verdict is Verdict.FENCED)
        if verdict is Verdict.FENCED or batch.may_be_written:
            self._fail(queue, batch, error)
        else:
            self._retry(queue, batch, error, now_ms)

    def _doubt(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, now_ms: int) -> None:
        assert self.idempotence is not None
        unwritten = self.idempotence.doubt(queue, batch)
        if unwritten:
            self.idempotence.want_bump(str(error))
        for one in unwritten:
            self._retry(queue, one, error, now_ms)

    def _uncertain(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception, now_ms: int) -> None:
        batch.may_be_written = True
        self._retry(queue, batch, error, now_ms)

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception, now_ms: int) -> None:
        if batch.is_abandoned or batch.attempts > self._config.retries or self._is_lost:
            self._fail(queue, batch, error)
            return
        if isinstance(error, KafkaError) and error.stale_metadata:
            self.metadata.mark_stale()
        is_contended = self.transaction is not None and isinstance(error, CONTENDED)
        if self.transaction is not None and is_contended:
            self.transaction.records_contended()
        batch.retry_at_ms = now_ms + self._backoff_ms(batch.attempts, CONTENTION_BACKOFF_MS if is_contended else None)
        if self.idempotence is None:
            queue.unsettled.remove(batch)
        self._accumulator.put_back(queue, batch)

    @property
    def _is_lost(self) -> bool:
        """Nothing that waits is sent any more."""
        return self.fatal is not None or (self.transaction is not None and self.transaction.is_lost)

    def _too_large(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if batch.is_revived and not batch.is_listed:
            batch.may_be_written = False  # its leader did not have it, and could not have taken it
        if batch.record_count == 1 or batch.is_abandoned or batch.may_be_written or self._is_lost:
            self._fail(queue, batch, error)
            return
        parts = batch.split(self._codec, self._level, self.transaction is not None)
        if self.journal is not None:
            self.journal.split(batch, parts)
        at = queue.unsettled.index(batch)
        queue.unsettled[at : at + 1] = parts if self.idempotence is not None else []
        for part in parts:
            part.attempts = batch.attempts
        self._accumulator.put_back_parts(queue, batch, parts)
        self._counters.batch_splits += 1

    def _learn_leader(self, queue: PartitionQueue, answer: ProducedPartition) -> None:
        """A broker that lost its office may name its successor; metadata then need not be waited for."""
        leader = answer.current_leader
        if leader is None or leader.leader_epoch <= queue.leader_epoch:
            return
        if any(node.node_id == leader.leader_id for node in self._cluster.nodes):
            queue.leader = leader.leader_id
            queue.leader_epoch = leader.leader_epoch
            self._arrange_rings()

    # --- fates ------------------------------------------------------------------------------------------------

    def _store(self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        batch.is_in_flight = False
        if self.idempotence is not None:
            while queue.unsettled[0].is_doubted and queue.unsettled[0] is not batch:
                queue.unsettled[0].is_doubted = False  # what is behind it is stored, so it is
                self._counters.duplicates_acknowledged += 1
                self._store(queue, queue.unsettled[0], NO_OFFSET, NO_TIMESTAMP)
            self.idempotence.stored(queue, batch)
        else:
            queue.unsettled.remove(batch)
        if batch.is_abandoned:
            self._settle_journal(batch)
            return
        batch.delivery.settle(base_offset, append_time_ms)
        self._finish(queue, batch)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """The batch, which is in no queue, will not be sent again."""
        if self.idempotence is None:
            if batch in queue.unsettled:
                queue.unsettled.remove(batch)
        elif batch.is_numbered:
            self.idempotence.gave_up(queue, batch, str(error))
        if batch.is_abandoned:
            self._settle_journal(batch)
        else:
            self._report(queue, batch, _honest(error, batch))

    def _report(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        self._counters.records_failed += batch.record_count
        if self.transaction is not None:
            self.transaction.record_failed(error)
        batch.delivery.fail(error)
        self._finish(queue, batch)

    def _finish(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The fate is known. It is told after those of the batches ahead: a partition's callbacks run in order. Without
        idempotence the records themselves may change places, and nothing bounds how many would have to wait."""
        self._settle_journal(batch)
        if self.idempotence is not None and _has_untold_ahead(queue, batch):
            self._untold.setdefault(queue, []).append(batch)
            return
        self._tell(queue, batch)
        if self._untold:
            self._tell_followers(queue)

    def _tell_followers(self, queue: PartitionQueue) -> None:
        followers = sorted(self._untold.pop(queue, ()), key=_ordinal)
        while followers and not _has_untold_ahead(queue, followers[0]):
            self._tell(queue, followers.pop(0))
        if followers:
            self._untold[queue] = followers

    def _tell(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._on_settled(batch)
        batch.delivery.announce()
        self._accumulator.finish(queue, batch)
        self._has_news = True

    def _tell_news(self) -> None:
        self._has_news = False
        self._on_news()

    def _settle_journal(self, batch: ProducerBatch) -> None:
        if self.journal is not None and not batch.is_in_flight:
            self.journal.settled(batch)

    # --- time -------------------------------------------------------------------------------------------------

    def _expire(self, now_ms: int) -> None:
        if now_ms < self._expire_at_ms:
            return
        self._expire_at_ms = now_ms + EXPIRY_PERIOD_MS
        oldest_ms = now_ms - self._config.delivery_timeout_ms
        if self._accumulator.oldest_ms(now_ms) > oldest_ms:
            return
        for queue in self.all_queues():
            for batch in [batch for batch in queue.unsettled if batch.created_ms <= oldest_ms]:
                if not batch.is_in_flight:
                    self._give_up_waiting(queue, batch)
                elif not batch.is_abandoned:
                    self._abandon(queue, batch)
            while queue.batches and queue.batches[0].created_ms <= oldest_ms:
                self._give_up_waiting(queue, queue.batches[0])

    def _give_up_waiting(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if not batch.is_doubted:
            self._accumulator.drop(queue, batch)
        self._fail(queue, batch, self._timed_out(queue, batch))

    def _abandon(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Its time is over while a broker has it: the user is told now, its number is kept until the answer comes."""
        batch.may_be_written = True
        batch.is_abandoned = True
        self._report(queue, batch, self._timed_out(queue, batch))

    def _timed_out(self, queue: PartitionQueue, batch: ProducerBatch) -> DeliveryTimedOut:
        waited = "no broker took them"
        if queue.leader == NO_LEADER:
            waited = "the partition has no leader"
        elif batch.may_be_written:
            waited = "a broker may have stored them, but none confirmed it"
        elif not self._cluster.is_connected:
            waited = f"no broker is reachable ({self.network.why_unreachable()})"
        return DeliveryTimedOut(
            f"{batch.record_count} records for {queue.topic}-{queue.index} were not acknowledged within"
            f" delivery.timeout.ms ({self._config.delivery_timeout_ms}): {waited}",
            may_be_written=batch.may_be_written,
        )

    def _backoff_ms(self, attempts: int, first_ms: int | None = None) -> int:
        doublings = min(max(attempts - 1, 0), MAX_BACKOFF_DOUBLINGS)
        first_ms = self._config.retry_backoff_ms if first_ms is None else min(first_ms, self._config.retry_backoff_ms)
        backoff_ms = min(first_ms << doublings, self._config.retry_backoff_max_ms)
        return int(backoff_ms * (0.8 + 0.4 * self._jitter()))

    def _sleep_ms(self, now_ms: int, wake_ms: int) -> int:
        if self._is_finished:
            return 0
        if self._accumulator.incomplete:
            wake_ms = min(wake_ms, self._expire_at_ms)
        for due_ms in (self._question_due_ms(), self.close_at_ms):
            if due_ms is not None:
                wake_ms = min(wake_ms, due_ms)
        return max(0, min(wake_ms - now_ms, MAX_POLL_MS))

    def _question_due_ms(self) -> int | None:
        """When to ask for metadata or a producer id; None while there is nobody to ask."""
        if self._cluster.lacks_node:
            return None
        due_ms = self.metadata.due_ms()
        if self._wants_id:
            due_ms = self._ask_id_at_ms if due_ms is None else min(due_ms, self._ask_id_at_ms)
        return due_ms

    # --- the end ----------------------------------------------------------------------------------------------

    def _close_if_done(self, now_ms: int) -> None:
        assert self.close_at_ms is not None
        is_late = now_ms >= self.close_at_ms
        if self.transaction is not None and self.transaction.is_busy and not is_late:
            return
        if self._accumulator.incomplete and is_late:
            self.give_up(ProducerClosed("the producer was closed before the records could be sent"))
        if self._accumulator.close_if_complete():
            for event in self.network.close():
                self.handle(event, now_ms)
            self._is_finished = True
            self._has_news = True

    def give_up(self, error: Exception) -> None:
        """Fail everything that was accepted, now and later."""
        self.fatal = self.fatal or error
        for queue in self.all_queues():
            out = [batch for batch in queue.unsettled if batch.is_in_flight or batch.is_doubted]
            for batch in [batch for batch in out if not batch.is_abandoned]:
                batch.may_be_written = True
                batch.is_abandoned = True
                self._report(queue, batch, _honest(error, batch))
        self.refuse_waiting(error)

    # --- what a transaction asks ------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        return not self._accumulator.incomplete

    def is_in_flight(self) -> bool:
        return any(batch.is_in_flight for queue in self.all_queues() for batch in queue.unsettled)

    def refuse_waiting(self, error: Exception) -> None:
        for queue in self.all_queues():
            while queue.batches:
                batch = queue.batches[0]
                self._accumulator.drop(queue, batch)
                self._fail(queue, batch, error)
        self._tell_news()


def _ordinal(batch: ProducerBatch) -> int:
    return batch.ordinal


def _has_untold_ahead(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    if queue.batches and queue.batches[0].was_sent_before(batch):
        return True
    return any(one.was_sent_before(batch) and not one.is_abandoned for one in queue.unsettled)


def _error_of(queue: PartitionQueue, answer: ProducedPartition) -> KafkaError:
    said = answer.error_message or error_for_code(answer.error_code).message
    return error_for_code(answer.error_code, f"{queue.topic}-{queue.index}: {said}")


def _honest(error: Exception, batch: ProducerBatch) -> Exception:
    """An error that says whether the batch may be stored all the same."""
    if isinstance(error, DeliveryFailed) or not batch.may_be_written:
        return error
    failed = DeliveryFailed(
        f"{error} (a broker may have stored the records in an earlier attempt)", may_be_written=True
    )
    failed.__cause__ = error
    return failed
