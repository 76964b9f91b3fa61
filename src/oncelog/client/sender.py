"""The producer's sender, without I/O: takes ready batches, forms requests, and decides what each answer means.

A driver calls `poll` when something may be due and `handle` for each event of the network; `poll` says when it wants to
be called next. All state here belongs to the driver's thread. What users' threads touch lies in the `Accumulator`, and
in the few attributes that a shell sets to ask for something (`awaited_topics`, `close_at_ms`).

The shell is told of two things: a batch whose fate is known (`on_settled`, to run callbacks), and news that somebody
may wait for (`on_news`: memory came free, a topic became known, the producer failed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.cluster import Cluster
from oncelog.client.dispatch import MAX_POLL_MS, Dispatch, ProduceTag
from oncelog.client.fates import UNUSUAL_ATTEMPTS, BatchJournal, Fates
from oncelog.client.idempotence import Idempotence, Identity
from oncelog.client.leaderless import without_leader
from oncelog.client.metadata import NO_LEADER, TopicMetadata
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import DeliveryFailed, DeliveryTimedOut, ProducerClosed
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import TransactionSettings
from oncelog.errors import NONE, UnknownTopicOrPartition, UnsupportedVersion, error_for_code
from oncelog.printable import counted
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.produce import ProducedPartition, ProduceResponse

EXPIRY_PERIOD_MS = 50  # how exactly `delivery.timeout.ms` is kept


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
        new_idempotence: Callable[[], Idempotence] = Idempotence,
    ) -> None:
        self.network = network
        self.idempotence = new_idempotence() if config.enable_idempotence else None
        self.metadata = MetadataCache(
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_idle_ms,
            retry_backoff_ms=config.retry_backoff_ms,
        )
        self.awaited_topics: dict[str, int] = {}
        """Topics that callers wait to learn about, and how many do."""
        self.close_at_ms: int | None = None
        """When set: finish what was accepted, and give up on the rest then."""
        self._config = config
        self._accumulator = accumulator
        self._counters = counters
        self._jitter = jitter
        self._on_news = on_news
        self._cluster = Cluster(network, self.metadata, config.bootstrap_servers)
        self._fates = Fates(config, accumulator, self.idempotence, self.metadata, counters, jitter, on_settled)
        self._dispatch = Dispatch(config, accumulator, network, self.idempotence, self.metadata, counters, self._fates)
        self.transaction = self._new_transaction()
        self._asking_id = False
        self._id_attempts = 0
        self._ask_id_at_ms = 0
        self._expire_at_ms = 0
        self._linger_ms = config.linger_ms
        self._least_timeout_ms = min(config.request_timeout_ms, config.delivery_timeout_ms)
        self._wait_until_ms = 0  # how long the end waits for that of a transaction
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

    @property
    def transaction(self) -> TransactionCore | None:
        return self._fates.transaction

    @transaction.setter
    def transaction(self, transaction: TransactionCore | None) -> None:
        self._fates.transaction = transaction

    @property
    def fatal(self) -> Exception | None:
        """Why nothing can be sent any more."""
        return self._fates.fatal

    def keep_numbers_in(self, journal: BatchJournal) -> None:
        """No numbered batch leaves before the journal has it."""
        self._fates.journal = journal

    # --- what a driver calls ----------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        return self._is_finished

    @property
    def is_connected(self) -> bool:
        """A broker is there to be asked. For any thread."""
        return bool(self._cluster.is_connected)

    @property
    def connected_to(self) -> list[str]:
        """The addresses of the brokers that are there to be asked. For any thread."""
        return list(self._cluster.connected_to)

    def poll(self, now_ms: int) -> int:
        self._counters.tick(now_ms)
        self._expire(now_ms)
        self._refresh_metadata(now_ms)
        self._bump_if_quiet()
        self._ask_for_id(now_ms)
        wake_ms = self._dispatch.send_ready(now_ms, self._is_urgent)
        if self.transaction is not None:
            wake_ms = min(wake_ms, self.transaction.poll(now_ms) or wake_ms)
        if self.close_at_ms is not None:
            self._close_if_done(now_ms)
        if self._fates.has_news:  # of memory that came free by time alone, or because nobody answers (acks=0)
            self._tell_news()
        return self._sleep_ms(now_ms, wake_ms)

    def handle(self, event: Event, now_ms: int) -> None:
        tag = event.tag
        if isinstance(tag, ProduceTag):
            self._dispatch.ended(tag)
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

    def batch_due_ms(self, queue: PartitionQueue, now_ms: int) -> int:
        """By when somebody must poll after a batch was to be begun in this queue: at once for those ahead of it, or to
        make room for it; otherwise it may linger first."""
        is_alone = queue.open is not None and queue.head is queue.open
        return now_ms + self._linger_ms if is_alone and not self._is_urgent else now_ms

    def send_alone(self, queue: PartitionQueue, now_ms: int, wakes_at_ms: int) -> bool:
        """Send the queue's batch, if it is the only one that there is, may go at once, and nothing else is due before
        somebody polls at `wakes_at_ms`. What follows from it by time alone is for that poll; False, with nothing
        changed, where any more would have to be done."""
        network = self.network
        if len(self._accumulator.incomplete) != 1 or len(queue.batches) != 1 or self._is_urgent or self.awaited_topics:
            return False
        if not self._fates.are_plain or wakes_at_ms > now_ms + self._least_timeout_ms or self._question_is_due(now_ms):
            return False
        leader = queue.leader
        if leader == NO_LEADER or not network.is_ready(leader, now_ms) or network.is_due(now_ms):
            return False
        return self._dispatch.send_alone(leader, queue, now_ms)

    def awaits_one_answer(self) -> bool:
        """One batch is under way, nobody but one thread is to be told of it, and nothing else is to be done."""
        incomplete = self._accumulator.incomplete
        if len(incomplete) != 1 or not self._fates.are_plain:
            return False
        for batch in incomplete:
            return batch.is_in_flight and not batch.has_callbacks and batch.delivery.awaits_one_thread
        return False

    def _question_is_due(self, now_ms: int) -> bool:
        idempotence = self.idempotence
        if idempotence is not None and (idempotence.identity is None or idempotence.bump_reason is not None):
            return True
        due_ms = self.metadata.due_ms()
        return due_ms is not None and due_ms <= now_ms

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
        self._fates.fatal = None
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
            elif topic.error_code == UnknownTopicOrPartition.code:
                self._accumulator.forget_leaders(topic.name)
        self._dispatch.arrange(self.all_queues())
        self._tell_news()

    def _learn_topic(self, topic: TopicMetadata) -> None:
        """A leader that is not among the brokers is none: who it is must be asked again."""
        nodes = {node.node_id for node in self._cluster.nodes}
        leaders = ((one, one.leader if one.leader in nodes else NO_LEADER) for one in topic.partitions)
        self._accumulator.learn_partitions(
            topic.name, ((one.index, topic.topic_id, leader, one.leader_epoch) for one, leader in leaders)
        )

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
        identity = None
        if isinstance(event, Answered) and event.body["error_code"] == NONE:
            identity = Identity(event.body["producer_id"], event.body["producer_epoch"])
            if identity.is_valid:
                self._id_attempts = 0
                self.idempotence.learn(*identity)
                return
        self._id_attempts += 1
        backoff_ms = self._fates.backoff_ms(self._id_attempts)
        self._ask_id_at_ms = now_ms + backoff_ms
        if self._id_attempts >= UNUSUAL_ATTEMPTS:
            self._fates.warn_of_id(event, self._id_attempts, backoff_ms, now_ms)
        if isinstance(event, Answered):
            error = error_for_code(event.body["error_code"])
            if identity is None and not error.retriable:
                self.give_up(error)
        elif event.kind is LostKind.UNSUPPORTED:
            self.give_up(UnsupportedVersion(f"{event.reason}; idempotence needs it, or set enable.idempotence=false"))

    def _bump_if_quiet(self) -> None:
        if self.idempotence is None or self.transaction is not None:
            return
        if self.idempotence.bump(self.all_queues()):
            self._counters.epoch_bumps += 1

    # --- answers ----------------------------------------------------------------------------------------------

    def _produced(self, tag: ProduceTag, event: Answered, now_ms: int) -> None:
        response: ProduceResponse = event.body
        self._counters.request_answered(now_ms - event.sent_ms, response.throttle_ms)
        if response.throttle_ms > 0:
            self.network.throttle(event.node_id, now_ms + response.throttle_ms)
        for topic in response.topics:
            batches = tag.of_topic(topic)
            for answer in topic.partitions:
                found = batches.pop(answer.index, None)
                if found is not None:
                    queue, batch = found
                    batch.is_in_flight = False
                    if answer.current_leader is not None:
                        self._learn_leader(queue, answer)
                    self._fates.judge(queue, batch, answer, now_ms)
        for queue, batch in tag.rest():
            batch.is_in_flight = False
            silence = f"{queue.topic}-{queue.index}: the broker's answer left this partition out"
            self._fates.uncertain(queue, batch, DeliveryFailed(silence, may_be_written=True), now_ms)
        self._fates.has_news = True

    def _lost(self, tag: ProduceTag, event: Lost, now_ms: int) -> None:
        self.metadata.mark_stale()
        for queue, batch in tag.rest():
            batch.is_in_flight = False
            if event.kind is LostKind.UNSUPPORTED:
                self._fates.fail(queue, batch, UnsupportedVersion(event.reason))
            elif event.kind is LostKind.NEVER_SENT:
                error = DeliveryFailed(event.reason, may_be_written=batch.may_be_written)
                self._fates.retry(queue, batch, error, now_ms)
            else:
                self._fates.uncertain(queue, batch, DeliveryFailed(event.reason, may_be_written=True), now_ms)
        self._fates.has_news = True

    def _learn_leader(self, queue: PartitionQueue, answer: ProducedPartition) -> None:
        """A broker that lost its office may name its successor; metadata then need not be waited for."""
        leader = answer.current_leader
        if leader is None or leader.leader_epoch <= queue.leader_epoch:
            return
        if any(node.node_id == leader.leader_id for node in self._cluster.nodes):
            queue.leader = leader.leader_id
            queue.leader_epoch = leader.leader_epoch
            self._dispatch.arrange(self.all_queues())

    def _tell_news(self) -> None:
        self._fates.has_news = False
        self._on_news()

    @property
    def _is_urgent(self) -> bool:
        """Nobody lingers for more records."""
        accumulator = self._accumulator
        return bool(accumulator.flushing or accumulator.are_waiting_for_memory or self.close_at_ms is not None)

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
            while queue.head is not None and queue.head.created_ms <= oldest_ms:
                self._give_up_waiting(queue, queue.head)

    def _give_up_waiting(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if not batch.is_doubted:
            self._accumulator.drop(queue, batch)
        self._fates.fail(queue, batch, self._timed_out(queue, batch))

    def _abandon(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.may_be_written = True
        self._fates.abandon(queue, batch, self._timed_out(queue, batch))

    def _timed_out(self, queue: PartitionQueue, batch: ProducerBatch) -> DeliveryTimedOut:
        waited = "no broker took them"
        if queue.leader == NO_LEADER:
            is_gone = self.metadata.topic_errors.get(queue.topic) == UnknownTopicOrPartition.code
            here = TopicPartition(queue.topic, queue.index)
            waited = "no broker has the topic" if is_gone else without_leader([here])
        elif batch.may_be_written:
            waited = "a broker may have stored them, but none confirmed it"
        elif not self._cluster.is_connected:
            waited = f"no broker is reachable ({self.network.why_unreachable()})"
        return DeliveryTimedOut(
            f"{counted(batch.record_count, 'record')} for {queue.topic}-{queue.index} not acknowledged within"
            f" delivery.timeout.ms ({self._config.delivery_timeout_ms}): {waited}",
            may_be_written=batch.may_be_written,
        )

    def _sleep_ms(self, now_ms: int, wake_ms: int) -> int:
        if self._is_finished:
            return 0
        if self._accumulator.incomplete:
            wake_ms = min(wake_ms, self._expire_at_ms)
        for due_ms in (self._question_due_ms(), self.close_at_ms):
            if due_ms is not None:
                wake_ms = min(wake_ms, due_ms)
        if now_ms < self._wait_until_ms:
            wake_ms = min(wake_ms, self._wait_until_ms)
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
        if self.transaction is not None:
            self._wait_until_ms = self.transaction.wait_until_ms(self.close_at_ms, now_ms)
            if now_ms < self._wait_until_ms:
                return
            is_late = is_late or self.transaction.is_busy
        if self._accumulator.incomplete and is_late:
            self.give_up(ProducerClosed("the producer was closed before the records could be sent"))
        if self._accumulator.close_if_complete():
            if self.transaction is not None:
                self.transaction.closed()
            for event in self.network.close():
                self.handle(event, now_ms)
            self._is_finished = True
            self._fates.has_news = True

    def give_up(self, error: Exception) -> None:
        """Fail everything that was accepted, now and later."""
        self._fates.fatal = self.fatal or error
        for queue in self.all_queues():
            out = [batch for batch in queue.unsettled if batch.is_in_flight or batch.is_doubted]
            for batch in [batch for batch in out if not batch.is_abandoned]:
                self._fates.abandon(queue, batch, error)
        self.refuse_waiting(error)

    # --- what a transaction asks ------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        return not self._accumulator.incomplete

    def is_in_flight(self) -> bool:
        return any(batch.is_in_flight for queue in self.all_queues() for batch in queue.unsettled)

    def refuse_waiting(self, error: Exception) -> None:
        for queue in self.all_queues():
            while (batch := queue.head) is not None:
                self._accumulator.drop(queue, batch)
                self._fates.fail(queue, batch, error)
        self._tell_news()
