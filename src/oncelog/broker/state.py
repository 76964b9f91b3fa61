"""What the broker is: its config, the cluster's metadata, the logs, and what waits on them.

Ties the rooms below together and holds no rule of theirs: the controller decides what exists, `commit` makes it durable
and then brings the logs in line with it, record by record. Handlers ask it for partitions; the server gives it an
endpoint and threads. All calls come from one thread.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from uuid import UUID

from oncelog.broker.config import BROKER_KEYS, BrokerConfig, BrokerConfigSchema, Endpoint
from oncelog.broker.fetch_session import FetchSessionCache
from oncelog.broker.fetch_view import TopicKey
from oncelog.broker.group_commit import GroupCommit
from oncelog.broker.lookup_memory import LookupMemory
from oncelog.broker.metrics import BrokerMetrics
from oncelog.broker.off_loop import OffLoop
from oncelog.broker.purgatory import FetchPurgatory
from oncelog.broker.quota.client_quotas import ClientQuotas
from oncelog.broker.quota.window import Window
from oncelog.broker.sessionless import SessionlessViews
from oncelog.broker.unopened_logs import UnopenedLogs
from oncelog.controller.configs import ALL_BROKERS
from oncelog.controller.controller import Controller
from oncelog.controller.identity import Identity, load_or_create
from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import FIRST_LEADER_EPOCH, ConfigResource, Outcome, ResourceType, Topic
from oncelog.controller.strays import Whose, has_records, whose
from oncelog.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_internal
from oncelog.controller.topics import Cluster, NewTopic, create_topics
from oncelog.errors import (
    FencedLeaderEpoch,
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from oncelog.log.config import LogConfig
from oncelog.log.folders import see_doctor
from oncelog.log.manager import LogManager, ParallelMap, Reopening
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import Storage, is_temporary
from oncelog.records.validation import BatchRules
from oncelog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.groups.coordination import Coordination
    from oncelog.broker.transactions.coordination import TransactionCoordination

logger = logging.getLogger(__name__)

T = TypeVar("T")

SESSION_ID_MASK = 2**31 - 1

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""What the records of one batch may decompress to: all of it is in memory for a moment, for zstd twice. More only where
the topic's `max.message.bytes` is larger."""


TOPIC_RECORDS = frozenset({RecordType.TOPIC, RecordType.PARTITION, RecordType.REMOVE_TOPIC})


class Timers(Protocol):
    def later(self, delay_ms: int, step: Callable[[], None]) -> Callable[[], None]:
        """Call `step` once, unless what is returned is called before."""

    def now_ms(self) -> int:
        """The time of day of the start, and from then on a clock that nobody turns."""

    def wall_ms(self) -> int:
        """The time of day."""


class BrokerState:
    group_commit: GroupCommit
    """Set by the server, which has the threads."""

    timers: Timers
    """Set by the server, which has the loop."""

    endpoint: Endpoint
    """Where clients reach this broker. Set by the server once it listens."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        identity: Identity,
        controller: Controller,
        new_id: Callable[[], UUID],
    ) -> None:
        self.config = config
        self.storage = storage
        self.controller = controller
        self.new_id = new_id
        self.node_id = identity.node_id
        self.cluster_id = identity.cluster_id
        self.config_schema = BrokerConfigSchema(lambda: self.config)
        self.metrics = BrokerMetrics()
        self.purgatory = FetchPurgatory()
        self.off_loop = OffLoop()  # the server puts one with threads in its place
        self.timestamp_lookups = LookupMemory()
        self._rules_of: LogConfig | None = None
        self._rules: BatchRules
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self.quotas = ClientQuotas(window, controller.state.client_quotas, self.metrics.throttled)
        self.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            lambda: new_id().int & SESSION_ID_MASK,
            self._partitions_of,
            self.purgatory.unwatch,
        )
        self.sessionless = SessionlessViews(self.purgatory)
        self.logs: LogManager
        self.unopened_logs = UnopenedLogs()
        self._directory_id = identity.directory_id
        self._coordination: Coordination | None = None
        self._transactions: TransactionCoordination | None = None

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        storage: Storage,
        *,
        now_ms: int,
        new_id: Callable[[], UUID],
        parallel_map: ParallelMap = map,
    ) -> BrokerState:
        """Recover everything in the data folder, whose lock the caller holds. `new_id` makes random ids."""
        storage.make_directory(config.log_dir)
        identity = load_or_create(storage, config.log_dir, config.node_id, new_id)
        controller = Controller.open(
            storage,
            config.log_dir,
            identity,
            max_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
            now_ms=now_ms,
        )
        broker = cls(config, storage, identity, controller, new_id)
        broker._apply_dynamic_config()
        broker._open_logs(now_ms, parallel_map)
        return broker

    # --- what exists ---

    @property
    def cluster(self) -> Cluster:
        config = self.config
        return Cluster(self.node_id, self._directory_id, config.num_partitions, config.default_replication_factor)

    def partition(self, topic: str, index: int) -> PartitionLog:
        """Raises UnknownTopicOrPartition, and KafkaStorageError where the disk failed."""
        log = self.logs.get(TopicPartition(topic, index))
        if log is not None and not log.offline:
            return log
        if not self._exists(topic, index):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if log is not None:
            raise KafkaStorageError(f"the disk behind {topic}-{index} failed; it is offline until a restart")
        return self._create_log(TopicPartition(topic, index))

    def is_offline(self, topic: str, index: int) -> bool:
        """The partition exists, and its log cannot be used."""
        partition = TopicPartition(topic, index)
        log = self.logs.logs.get(partition)
        is_unusable = log.offline if log is not None else partition in self.logs.report.failed
        return is_unusable and self._exists(topic, index)

    def is_unwritten(self, partition: TopicPartition) -> bool:
        """The partition exists, and nobody has asked for its log so far."""
        is_known = partition in self.logs.logs or partition in self.logs.report.failed
        return not is_known and self._exists(*partition)

    def _exists(self, topic: str, index: int) -> bool:
        known = self.controller.state.topic(topic)
        return known is not None and index in known.partitions

    def _partitions_of(self, key: TopicKey) -> Container[int]:
        state = self.controller.state
        topic = state.topic(key.name) if key.topic_id is None else state.topic_by_id(key.topic_id)
        return () if topic is None else topic.partitions

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.controller.state.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> UUID | None:
        topic = self.controller.state.topic(name)
        return None if topic is None else topic.id

    def leader_epoch(self, topic: str, index: int) -> int:
        return self.controller.state.topics[topic].partitions[index].leader_epoch

    def check_leader_epoch(self, topic: str, index: int, claimed: int) -> None:
        """A client with older metadata is fenced, one with newer must wait until this broker has caught up."""
        if claimed == NO_LEADER_EPOCH:
            return
        current = self.leader_epoch(topic, index)
        if claimed < current:
            raise FencedLeaderEpoch(f"the leader epoch of {topic}-{index} is {current}, not {claimed} any more")
        if claimed > current:
            raise UnknownLeaderEpoch(f"the leader epoch of {topic}-{index} is {current}, not {claimed} yet")

    def log_config(self, topic: str) -> LogConfig:
        return self.config.log_config(self.controller.state.configs(ConfigResource(ResourceType.TOPIC, topic)))

    def batch_rules(self, config: LogConfig, wall_ms: int) -> BatchRules:
        """What a client's batch must fulfil. Compressed, it carries no more than a request could. The last ones are
        kept: most batches are for the same topic as the one before, and come in the same millisecond."""
        if config is self._rules_of and self._rules.now_ms == wall_ms:
            return self._rules
        self._rules_of = config
        self._rules = BatchRules(
            config.max_message_bytes,
            min(self.config.socket_request_max_bytes, max(MAX_DECOMPRESSED_BYTES, config.max_message_bytes)),
            wall_ms,
            config.compacts,
            config.message_timestamp_type,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
        return self._rules

    # --- changing it ---

    def commit(self, outcome: Outcome[T], now_ms: int) -> T:
        """Make a plan of the controller durable and true, then bring the logs in line with it. Raises
        KafkaStorageError, and then nothing has changed."""
        removed = [self._topic(record) for record in outcome.records if record.type is RecordType.REMOVE_TOPIC]
        response = self.controller.commit(outcome, now_ms)
        for topic in removed:
            self._forget_topic(topic, now_ms)
        reconfigured = [record for record in outcome.records if record.type is RecordType.CONFIG]
        if reconfigured:
            self._reconfigure(reconfigured)
        if any(record.type is RecordType.CLIENT_QUOTA for record in outcome.records):
            self.quotas.replace(self.controller.state.client_quotas)
        if any(record.type in TOPIC_RECORDS for record in outcome.records):
            for coordination in (self._coordination, self._transactions):
                if coordination is not None:
                    coordination.topics_changed()
        return response

    # --- groups and transactions ---

    @property
    def coordination(self) -> Coordination:
        if self._coordination is None:
            from oncelog.broker.groups.coordination import Coordination  # for a broker that serves no group, a burden

            self._coordination = Coordination(self)
        return self._coordination

    @property
    def transactions(self) -> TransactionCoordination:
        if self._transactions is None:
            from oncelog.broker.transactions.coordination import TransactionCoordination  # as above

            self._transactions = TransactionCoordination(self)
        return self._transactions

    def resume_groups(self) -> None:
        """After a start: members that never came back must be noticed, also if nobody asks about their groups."""
        if self.controller.state.topic(OFFSETS_TOPIC) is not None:
            self.coordination.start()

    def resume_transactions(self) -> None:
        """After a start: what was decided is carried out, and what stays open for too long is aborted."""
        if self.controller.state.topic(TRANSACTIONS_TOPIC) is not None:
            self.transactions.start()

    def groups_by_state(self) -> Counter[tuple[str, str]]:
        """How many groups of each type are in each state. May be asked from any thread."""
        return Counter() if self._coordination is None else self._coordination.groups_by_state()

    @property
    def open_transactions(self) -> int:
        """May be asked from any thread."""
        return 0 if self._transactions is None else self._transactions.open_count

    @property
    def unwritten_markers(self) -> int:
        """May be asked from any thread."""
        return 0 if self._transactions is None else self._transactions.unwritten_markers

    def log_failed(self, partition: TopicPartition) -> None:
        """A log went offline: whoever waits for it must hear."""
        self.purgatory.changed(partition)
        for coordination in (self._coordination, self._transactions):
            if coordination is not None:
                coordination.log_failed(partition)

    def creates_mentioned(self, name: str) -> bool:
        """Whether a topic of this name comes to be when a client mentions it."""
        return self.config.auto_create_topics_enable and not is_internal(name)

    def ensure_topic(self, name: str, now_ms: int) -> Topic | None:
        """The topic; created if it does not exist and `auto.create.topics.enable` lets a client's mention create it.
        Raises what CreateTopics would answer."""
        topic = self.controller.state.topic(name)
        if topic is not None or not self.creates_mentioned(name):
            return topic
        outcome = create_topics(self.controller.state, self.cluster, self.config_schema, [NewTopic(name)], self.new_id)
        created = self.commit(outcome, now_ms)[name]
        if isinstance(created, KafkaError):
            raise created
        return self.controller.state.topic(name)

    def stop(self, now_ms: int, parallel_map: ParallelMap = map) -> None:
        """Make everything durable and leave a mark that the next start need not recover."""
        self.logs.stop(now_ms, parallel_map=parallel_map)
        self.controller.close(now_ms)

    def _topic(self, record: MetadataRecord) -> Topic:
        topic = self.controller.state.topic_by_id(record.body["topic_id"])
        assert topic is not None, "records are about topics that exist"
        return topic

    def _forget_topic(self, topic: Topic, now_ms: int) -> None:
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            self.unopened_logs.forget(partition)
            self.logs.delete(partition, now_ms)
        gone = [TopicPartition(topic.name, index) for index in topic.partitions]
        for partition in gone:  # all of them before one fetch wakes: it tells what it knows of
            self.purgatory.noted(partition)
        for partition in gone:
            self.purgatory.changed(partition)
        self.metrics.forget_topic(topic.name)

    def _create_log(self, partition: TopicPartition) -> PartitionLog:
        """Somebody asks for a partition that nobody has written to: until then it costs nothing."""
        topic = self.controller.state.topics[partition.topic]
        log = self.logs.create(partition, topic.id, self.log_config(topic.name), self._steady_ms)
        log.on_change = self.purgatory.noted
        self._begin_epoch(log)
        return log

    def _serve_log(self, log: PartitionLog) -> None:
        if self.unopened_logs.opened(log.topic_partition):
            logger.info("the log of %s is open now", log.topic_partition)
        log.on_change = self.purgatory.noted
        log.advance_high_watermark(log.log_end_offset)  # one replica: what is written can be read
        self._begin_epoch(log)

    def next_reopening(self, now_ms: int) -> Reopening | None:
        """Another try to open a log for which something was used up at the start, if one is due. It may take long to
        read: run it in a thread, and hand it to `log_reopened`."""
        partition = self.unopened_logs.next_due(self._steady_ms)
        if partition is None:
            return None
        return self.logs.reopening(partition, self.log_config(partition.topic), now_ms)

    def log_reopened(self, reopening: Reopening, error: Exception | None) -> None:
        partition = reopening.topic_partition
        if partition not in self.unopened_logs:
            return  # it was deleted meanwhile
        if error is None and self.logs.reopened(reopening):
            self._serve_log(self.logs.logs[partition])
        else:
            self.unopened_logs.failed(partition, self._steady_ms)

    @property
    def _steady_ms(self) -> int:
        """A time that does not go back, for waits; 0 before there is a clock."""
        return self.timers.now_ms() if hasattr(self, "timers") else 0

    def _reconfigure(self, records: list[MetadataRecord]) -> None:
        of_broker = [record.body for record in records if record.body["resource_type"] == ResourceType.BROKER]
        if of_broker:
            kept = sorted({body["name"] for body in of_broker if body["value"] is not None} - BROKER_KEYS.keys())
            if kept:  # never their values: some are secrets
                logger.warning("these broker configs were changed and have no effect here: %s", ", ".join(kept))
            self._apply_dynamic_config()
            names = list(self.controller.state.topics)
        else:
            topics = (record.body for record in records if record.body["resource_type"] == ResourceType.TOPIC)
            names = list(dict.fromkeys(body["resource_name"] for body in topics))
        for name in names:
            self.logs.update_config(name, self.log_config(name))

    def _apply_dynamic_config(self) -> None:
        self._rules_of = None
        state = self.controller.state
        self.config = self.config.with_dynamic(
            state.configs(ConfigResource(ResourceType.BROKER, ALL_BROKERS)),
            state.configs(ConfigResource(ResourceType.BROKER, str(self.node_id))),
        )

    # --- starting ---

    def _open_logs(self, now_ms: int, parallel_map: ParallelMap) -> None:
        configs = {name: self._stored_log_config(name) for name in self.controller.state.topics}

        def config_of(partition: TopicPartition, topic_id: UUID | None) -> LogConfig | None:
            """None for a folder of a topic that was deleted, even if another one has its name by now."""
            controller = self.controller
            owner = whose(controller.state, controller.removed_topics, partition, topic_id, is_whole=True)
            if owner is Whose.OURS:
                return configs[partition.topic]
            path = f"{self.config.log_dir}/{partition}"
            if owner is Whose.DOUBTFUL and has_records(self.storage, path):
                raise KafkaStorageError(
                    f"{path}/partition.metadata names the topic id {topic_id}, which is not that of {partition.topic} "
                    f"nor of a topic that was deleted. {see_doctor(self.config.log_dir)}"
                )
            return None

        self.logs = LogManager.open(
            self.storage,
            self.config.log_dir,
            config_of=config_of,
            now_ms=now_ms,
            parallel_map=parallel_map,
            foreign_epoch=self.controller.foreign_epoch,
            topic_id_of=lambda partition: self.controller.state.topics[partition.topic].id,
            was_deleted=lambda topic_id: topic_id in self.controller.removed_topics,
        )
        for partition, error in self.logs.report.failed.items():
            if is_temporary(error):
                self.unopened_logs.failed(partition, self._steady_ms)
        for log in self.logs.logs.values():
            self._serve_log(log)

    def _stored_log_config(self, topic: str) -> LogConfig:
        try:
            return self.log_config(topic)
        except InvalidConfig as error:
            raise InvalidConfig(
                f"topic {topic} was configured with what this broker cannot keep: {error.message}; "
                "change that with the broker that wrote this folder"
            ) from error

    def _begin_epoch(self, log: PartitionLog) -> None:
        """Note where the leader's epoch begins, as Kafka does: a reader may ask about epochs in which nothing was
        written. The first one needs no note."""
        epoch = self.leader_epoch(log.topic_partition.topic, log.topic_partition.partition)
        if epoch > FIRST_LEADER_EPOCH and epoch != log.leader_epochs.latest_epoch:
            log.begin_epoch(epoch)
