"""What the broker is: its config, the cluster's metadata, the logs, and what waits on them.

Ties the rooms below together and holds no rule of theirs: the controller decides what exists and makes it durable, and
`_follow` brings the logs in line with it, change by change, in short steps. Handlers ask it for partitions; the server
gives it an endpoint and threads. Calls come from the loop's thread; plans and the metadata log run in the lane's, one
at a time, while nothing changes the metadata.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from uuid import UUID

from oncelog.broker.config import BROKER_KEYS, BrokerConfig, BrokerConfigSchema, Endpoint
from oncelog.broker.descriptors import WantOfDescriptors
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
from oncelog.controller.changes import Change
from oncelog.controller.configs import ALL_BROKERS
from oncelog.controller.controller import Controller
from oncelog.controller.identity import Identity, load_or_create
from oncelog.controller.lane import Steps, guarded, tell_all
from oncelog.controller.records import AnyRecord, MetadataRecord, RecordType
from oncelog.controller.state import FIRST_LEADER_EPOCH, ConfigResource, Outcome, ResourceType, Topic
from oncelog.controller.strays import Whose, has_records, whose
from oncelog.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_internal
from oncelog.controller.topics import Cluster, Created, NewTopic, create_topics
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
from oncelog.log.open_files import OpenFiles
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import Storage, is_temporary
from oncelog.records.validation import BatchRules
from oncelog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.groups.coordination import Coordination
    from oncelog.broker.transactions.coordination import TransactionCoordination

logger = logging.getLogger(__name__)

T = TypeVar("T")

Refusals = Mapping[str, KafkaError]
"""Topics that could not be created, by their names."""

MAX_LOG_CONFIGS: Final = 1_000
"""Of topics that say different things; what is asked for beyond is worked out anew."""

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
        self.config_schema = BrokerConfigSchema(lambda: self.config, self._topics_own_lags)
        self.metrics = BrokerMetrics()
        self.want_of_descriptors = WantOfDescriptors()
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
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """By what topics say themselves; most say nothing, and share one."""
        self._directory_id = identity.directory_id
        controller.follow(self._follow, self._follow_all, self._sync_deletions)
        self._loading: dict[str, list[Callable[[str], None]]] = {}
        """Who waits for the code of a module, while it is being loaded."""
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
        open_files: OpenFiles | None = None,
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
        broker._open_logs(now_ms, parallel_map, open_files)
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
        texts = self.controller.state.configs(ConfigResource(ResourceType.TOPIC, topic))
        key = tuple(texts.items())
        config = self._log_configs.get(key)
        if config is None:
            if len(self._log_configs) >= MAX_LOG_CONFIGS:
                self._log_configs.clear()
            config = self._log_configs[key] = self.config.log_config(texts)
        return config

    def _topics_own_lags(self) -> list[Mapping[str, str]]:
        """What topics say that speak of compaction lags."""
        stored = self.controller.state.configured_resources()
        topics = (texts for resource, texts in stored if resource.type is ResourceType.TOPIC)
        return [texts for texts in topics if "min.compaction.lag.ms" in texts or "max.compaction.lag.ms" in texts]

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
        """Make a plan of the controller true at once, where no server is to be kept from its clients. Raises
        KafkaStorageError, and then nothing has changed."""
        errors: list[KafkaError | None] = []
        self.controller.propose(lambda: outcome, now_ms, lambda _, error: errors.append(error))
        assert errors, "a broker that serves proposes"
        if errors[0] is not None:
            raise errors[0]
        return outcome.response

    def _follow(self, change: Change) -> Steps:
        """Bring the logs in line with the metadata. A topic is gone as a whole: its logs are deleted while others are
        served, and who asks for one of them meanwhile is answered as if it were done."""
        for topic in change.removed:
            yield from self._forget_topic(topic, change.now_ms)
        configs = [record for record in change.records if record.type is RecordType.CONFIG]
        if configs and change.records[0].type is not RecordType.TOPIC:  # a new topic has no logs yet
            yield from self._reconfigure(configs)

    def _sync_deletions(self) -> None:
        """Before the metadata forgets them; in its thread. Raises KafkaStorageError."""
        self.logs.sync_deletions()

    def _follow_all(self, types: Set[RecordType]) -> Steps:
        if RecordType.CLIENT_QUOTA in types:
            self.quotas.replace(self.controller.state.client_quotas)
        if types & TOPIC_RECORDS:
            for coordination in (self._coordination, self._transactions):
                if coordination is not None:
                    yield from guarded(coordination.topics_changed())

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

    def when_loaded(self, module: str | None, now_ms: int, done: Callable[[], None]) -> None:
        """Call back when the code of a module is there. Loading that of a coordinator takes a tenth of a second: that
        is done where the metadata is written, as the topic of the coordinator comes next."""
        if module is None or (module in sys.modules and module not in self._loading):
            done()
        elif module in self._loading:  # a module is in sys.modules before its code has run
            self._loading[module].append(lambda _: done())
        else:
            self._loading[module] = [lambda _: done()]
            load = partial(importlib.import_module, module)
            self.controller.propose(
                lambda: Outcome([], load()), now_ms, lambda *_: tell_all(self._loading.pop(module), module)
            )

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

    def create_mentioned(self, names: Sequence[str], now_ms: int, done: Callable[[Refusals], None]) -> None:
        """Create topics that a client has mentioned. `done` is told which of them could not be, and why."""

        def plan() -> Outcome[Created]:
            missing = [NewTopic(name) for name in names if self.controller.state.topic(name) is None]
            return create_topics(self.controller.state, self.cluster, self.config_schema, missing, self.new_id)

        def ended(created: Created | None, error: KafkaError | None) -> None:
            refused = {name: one for name, one in (created or {}).items() if isinstance(one, KafkaError)}
            done({**dict.fromkeys(names, error), **refused} if error is not None else refused)

        self.controller.propose(plan, now_ms, ended)

    def stop(
        self, now_ms: int, parallel_map: ParallelMap = map, on_closed: Callable[[int, int], None] | None = None
    ) -> None:
        """Make everything durable and leave a mark that the next start need not recover."""
        self.logs.stop(now_ms, parallel_map=parallel_map, on_closed=on_closed)
        self.controller.close(now_ms)

    def _forget_topic(self, topic: Topic, now_ms: int) -> Steps:
        logs = self.logs.logs
        partitions = [TopicPartition(topic.name, index) for index in topic.partitions]
        for partition in partitions:  # in one step: of a topic that is no more nothing is served
            if partition in logs:
                logs[partition].offline = True
            self.purgatory.noted(partition)
        yield
        for partition in partitions:
            yield from guarded(self._delete_log(partition, now_ms))
        for partition in partitions:  # only now: a fetch that wakes tells of all that it knows of
            yield from guarded(self._wake_fetches(partition))
        self.metrics.forget_topic(topic.name)

    def _delete_log(self, partition: TopicPartition, now_ms: int) -> Steps:
        self.unopened_logs.forget(partition)
        self.logs.delete(partition, now_ms)
        yield

    def _wake_fetches(self, partition: TopicPartition) -> Steps:
        self.purgatory.changed(partition)
        yield

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
        topic = self.controller.state.topic(partition.topic)
        if topic is None:  # it is being deleted, or was before the start
            self.unopened_logs.forget(partition)
            return None
        return self.logs.reopening(partition, topic.id, self.log_config(topic.name), now_ms)

    def log_reopened(self, reopening: Reopening, error: Exception | None) -> None:
        partition = reopening.topic_partition
        if error is not None:
            logger.error("bug: opening the log of %s failed: %s", partition, error)
        if self.logs.reopened(reopening):
            log = self.logs.logs[partition]
            log.update_config(self.log_config(partition.topic))  # perhaps changed while it was being opened
            self._serve_log(log)
            for coordination in (self._coordination, self._transactions):
                if coordination is not None:
                    coordination.log_opened(partition)
        elif partition in self.unopened_logs:  # else it was deleted meanwhile
            self.unopened_logs.failed(partition, self._steady_ms)

    @property
    def _steady_ms(self) -> int:
        """A time that does not go back, for waits; 0 before there is a clock."""
        return self.timers.now_ms() if hasattr(self, "timers") else 0

    def _reconfigure(self, records: Sequence[AnyRecord]) -> Steps:
        bodies = [record.body for record in records if isinstance(record, MetadataRecord)]
        of_broker = [body for body in bodies if body["resource_type"] == ResourceType.BROKER]
        if of_broker:
            kept = sorted({body["name"] for body in of_broker if body["value"] is not None} - BROKER_KEYS.keys())
            if kept:  # never their values: some are secrets
                logger.warning("these broker configs were changed and have no effect here: %s", ", ".join(kept))
            self._apply_dynamic_config()
            names = list(self.controller.state.topics)
        else:
            names = list({body["resource_name"]: 0 for body in bodies if body["resource_type"] == ResourceType.TOPIC})
        for name in names:
            yield from guarded(self._configure_logs(name))

    def _configure_logs(self, name: str) -> Steps:
        topic = self.controller.state.topic(name)
        if topic is None:
            return
        config, logs = self.log_config(name), self.logs.logs
        for index in topic.partitions:
            log = logs.get(TopicPartition(name, index))
            if log is not None:
                log.update_config(config)
            yield

    def _apply_dynamic_config(self) -> None:
        self._rules_of = None
        self._log_configs.clear()
        state = self.controller.state
        self.config = self.config.with_dynamic(
            state.configs(ConfigResource(ResourceType.BROKER, ALL_BROKERS)),
            state.configs(ConfigResource(ResourceType.BROKER, str(self.node_id))),
        )

    # --- starting ---

    def _open_logs(self, now_ms: int, parallel_map: ParallelMap, open_files: OpenFiles | None) -> None:
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
            is_known=lambda topic_id: self.controller.state.topic_by_id(topic_id) is not None,
            open_files=open_files,
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
