"""All group coordinators of this broker: who coordinates which group, from when on, and what wakes them.

Owns the partitions of `__consumer_offsets` that are loaded, and one alarm for the earliest deadline of all. A partition
is loaded when a request first needs it or, after a start, one bounded step at a time in the background, so that
sessions of members that never came back end. Decides nothing about a group.

The time that coordinators are told is the timers': it goes on evenly, whatever happens to the wall clock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oncelog.broker.config.group_keys import GROUP_KEYS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from oncelog.broker.groups.answers import MANY_GROUPS, NO_PLACE, as_client_knows, refusal
from oncelog.broker.groups.partition import CoordinatedPartition
from oncelog.broker.groups.ticket import Gathering, Ticket
from oncelog.broker.request import Answer, Request
from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.controller.topic_names import OFFSETS_TOPIC
from oncelog.controller.topics import NewTopic, create_topics
from oncelog.coordinator.effects import NO_OVERRIDES, Caller, GroupOverrides, GroupSettings
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.groups import coordinator_for
from oncelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
MAX_COUNTING_ATTEMPTS = 10
LISTING_VERSION = 5
RELOAD_DELAY_MS = 1_000
"""After a write failed: the disk may have recovered by then, and a full one is not tried without pause."""
REMEMBERED_PLACES = 4_096
"""Groups whose partition need not be computed again."""

place_of_group = lru_cache(REMEMBERED_PLACES)(coordinator_for)


class Coordination:
    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._timers = broker.timers
        self._state = broker.controller.state
        self._topics = ClusterTopics(broker.controller.state)
        self._settings = group_settings(broker)
        self._codec = int(broker.config.values["offsets.topic.compression.codec"])  # type: ignore[arg-type]
        self._partitions: dict[int, CoordinatedPartition] = {}
        self._damaged: set[int] = set()
        self._alarm_ms: int | None = None
        self._cancel_alarm: Callable[[], object] = lambda: None
        self._is_loading = False

    # --- who coordinates ---

    def ensure_topic(self, now_ms: int) -> None:
        """Create `__consumer_offsets` as Kafka does. Raises what prevents it."""
        state = self._broker.controller.state
        if state.topic(OFFSETS_TOPIC) is not None:
            return
        values = self._broker.config.values
        topic = NewTopic(
            OFFSETS_TOPIC,
            int(values["offsets.topic.num.partitions"]),  # type: ignore[arg-type]
            int(values["offsets.topic.replication.factor"]),  # type: ignore[arg-type]
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(values["offsets.topic.segment.bytes"])),
            ],
        )
        outcome = create_topics(state, self._broker.cluster, self._broker.config_schema, [topic], self._broker.new_id)
        created = self._broker.commit(outcome, now_ms)[OFFSETS_TOPIC]
        if isinstance(created, KafkaError):
            raise created

    def check_available(self, group_id: str) -> None:
        """Whether the group's partition can be coordinated here. Raises CoordinatorNotAvailable."""
        index = place_of_group(group_id, self._partition_count())
        if index in self._damaged or self._broker.is_offline(OFFSETS_TOPIC, index):
            raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC}-{index} is offline")

    def _partition_count(self) -> int:
        """Raises NotCoordinator, as long as nobody has asked for the coordinator of a group."""
        topic = self._state.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise NotCoordinator("no group has a coordinator yet; ask for it with FindCoordinator")
        return len(topic.partitions)

    def _partition(self, index: int) -> CoordinatedPartition:
        """The partition, loaded. Raises what a client is told where it is not."""
        partition = self._partitions.get(index)
        if partition is None:
            partition = self._begin(index)
        elif partition.loading is None and not partition.log.offline:
            return partition
        if partition.log.offline:
            self._drop(index, NotCoordinator(f"{partition.log.topic_partition} is offline"))
            raise NotCoordinator(f"the disk behind {OFFSETS_TOPIC}-{index} failed")
        if partition.loading is not None:
            if partition.loading.is_short:
                self._load(index, partition)
            else:
                self._load_in_background()
                raise CoordinatorLoadInProgress(f"{OFFSETS_TOPIC}-{index} is being loaded; try again")
        return partition

    def _begin(self, index: int) -> CoordinatedPartition:
        if index in self._damaged:
            raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC}-{index} is damaged; the broker's log says where")
        log = self._broker.partition(OFFSETS_TOPIC, index)
        coordinator = GroupCoordinator(self._settings, self._topics, lambda: str(self._broker.new_id()))
        partition = CoordinatedPartition(self._broker, log, coordinator, self._codec, self._partition_failed)
        self._partitions[index] = partition
        return partition

    # --- loading ---

    def start(self) -> None:
        """After a start of the broker: load whatever groups left behind."""
        self._load_in_background()

    def _load_in_background(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._timers.later(0, self._load_next)

    def _load_next(self) -> None:
        self._is_loading = False
        for index in self._unloaded():
            try:
                partition = self._partitions.get(index) or self._begin(index)
                self._load(index, partition, one_step=True)
            except KafkaError as error:
                logger.error("%s-%d cannot be loaded: %s", OFFSETS_TOPIC, index, error)
            self._load_in_background()
            return

    def _unloaded(self) -> Iterator[int]:
        """Partitions that hold something, and are neither loaded nor beyond help."""
        topic = self._broker.controller.state.topic(OFFSETS_TOPIC)
        for index in topic.partitions if topic is not None else ():
            partition = self._partitions.get(index)
            if partition is not None:
                if partition.loading is not None:
                    yield index
            elif index not in self._damaged and self._holds_something(index):
                yield index

    def _holds_something(self, index: int) -> bool:
        log = self._broker.logs.logs.get(TopicPartition(OFFSETS_TOPIC, index))
        return log is not None and not log.offline and log.log_end_offset > log.log_start_offset

    def _load(self, index: int, partition: CoordinatedPartition, *, one_step: bool = False) -> None:
        """Raises CoordinatorNotAvailable where the log is damaged: then nobody may believe what it says."""
        assert partition.loading is not None
        try:
            while partition.loading.step():
                if one_step:
                    return
        except Exception as error:
            del self._partitions[index]
            self._damaged.add(index)
            logger.exception("%s is offline for groups", partition.log.topic_partition)
            raise CoordinatorNotAvailable(f"{partition.log.topic_partition} cannot be loaded: {error}") from error
        partition.loading = None
        now_ms = self._timers.now_ms()
        self._perform(partition, partition.coordinator.loaded, now_ms)
        self._perform(partition, partition.coordinator.topics_changed, now_ms)

    # --- requests ---

    def serve(self, request: Request, group_id: str) -> Answer:
        """The answer of the group's coordinator."""
        api_key, body = request.api_key, request.body
        ticket = Ticket(api_key, request.version, body)
        try:
            partition = self._partition(place_of_group(group_id, self._partition_count()))
        except KafkaError as error:
            return self._refused(ticket, error)
        now_ms = self._timers.now_ms()
        partition.ask(request, body, ticket, now_ms)
        if api_key != ApiKey.OFFSET_COMMIT or self._alarm_ms is None:  # a commit moves deadlines away only
            self._arm(partition, now_ms)
        return ticket.answer or ticket.result(partition.forget)

    def serve_many(self, request: Request) -> Answer:
        """Each group's answer from its coordinator, put together."""
        shape = MANY_GROUPS[request.api_key]
        body: Message = request.body
        try:
            count = self._partition_count()
        except KafkaError as error:
            return self._refused(Ticket(request.api_key, request.version, body), error)
        parts = shape.split(body, lambda group_id: place_of_group(group_id, count))
        gathering = Gathering(lambda answers: shape.merge(body, answers))
        for index, part in parts.items():
            ticket = Ticket(request.api_key, request.version, part)
            gathering.add(ticket)
            self._ask_part(request, index, part, ticket)
        return gathering.result()

    def serve_all(self, request: Request) -> Answer:
        """What all coordinators know, put together. The partitions that hold nothing have nothing to say."""
        unloaded = list(self._unloaded())
        gathering = Gathering(_merge_listings)
        for index in [*self._partitions, *(index for index in unloaded if index not in self._partitions)]:
            ticket = Ticket(request.api_key, request.version, request.body)
            gathering.add(ticket)
            self._ask_part(request, index, request.body, ticket)
        return gathering.result()

    def _ask_part(self, request: Request, index: int, body: Message, ticket: Ticket) -> None:
        try:
            if index == NO_PLACE:
                raise InvalidGroupId
            partition = self._partition(index)
        except KafkaError as error:
            ticket.settle(self._refused(ticket, error))
            return
        now_ms = self._timers.now_ms()
        partition.ask(request, body, ticket, now_ms)
        self._arm(partition, now_ms)

    def _refused(self, ticket: Ticket, error: KafkaError) -> Message:
        return refusal(ticket.api_key, ticket.version, ticket.body, as_client_knows(error))

    # --- the world changes ---

    def topics_changed(self) -> None:
        """Topics were created, grew or were deleted."""
        now_ms = self._timers.now_ms()
        for index, partition in list(self._partitions.items()):
            log = partition.log
            if log.offline or self._broker.logs.logs.get(log.topic_partition) is not log:
                self._drop(index, NotCoordinator("its topic was deleted"))
            elif partition.loading is None:
                self._perform(partition, partition.coordinator.topics_changed, now_ms)

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """The disk behind a log has failed: if it was a coordinator's, all who wait there must hear."""
        if topic_partition.topic == OFFSETS_TOPIC and topic_partition.partition in self._partitions:
            self._drop(topic_partition.partition, NotCoordinator(f"{topic_partition} is offline"))

    def _partition_failed(self, partition: CoordinatedPartition, error: KafkaError) -> None:
        index = partition.log.topic_partition.partition
        if self._partitions.get(index) is partition:
            self._drop(index, error)

    def _drop(self, index: int, error: KafkaError) -> None:
        """Forget what the coordinator knew. What the log says is loaded again later, or when somebody asks."""
        logger.error("%s-%d gives its groups up: %s", OFFSETS_TOPIC, index, error)
        self._partitions.pop(index).unload()
        self._timers.later(RELOAD_DELAY_MS, self._load_in_background)

    # --- time ---

    def _perform(self, partition: CoordinatedPartition, step: Callable[[int], Any], now_ms: int) -> None:
        partition.perform(step(now_ms), now_ms)
        self._arm(partition, now_ms)

    def _arm(self, partition: CoordinatedPartition, now_ms: int) -> None:
        """Deadlines mostly move away (a heartbeat came): an alarm that is too early costs less than a new one."""
        deadline_ms = partition.coordinator.next_deadline_ms()
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._cancel_alarm()
        self._alarm_ms = deadline_ms
        self._cancel_alarm = self._timers.later(max(0, deadline_ms - now_ms), self._ring)

    def _ring(self) -> None:
        self._alarm_ms = None
        now_ms = self._timers.now_ms()
        for partition in list(self._partitions.values()):
            if partition.loading is not None:
                continue
            deadline_ms = partition.coordinator.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                partition.perform(partition.coordinator.expire(now_ms), now_ms)
        for partition in self._partitions.values():
            if partition.loading is None:
                self._arm(partition, now_ms)

    # --- numbers ---

    def groups_by_state(self) -> Counter[tuple[str, str]]:
        """By type and state. Asked from the thread of the metrics: if groups come or go meanwhile, it counts again."""
        counted: Counter[tuple[str, str]] = Counter()
        for partition in list(self._partitions.values()):
            if partition.loading is None:
                counted.update((group["group_type"], group["group_state"]) for group in _listing(partition.coordinator))
        return counted


def _listing(coordinator: GroupCoordinator) -> list[Message]:
    everything: Message = {"states_filter": [], "types_filter": []}
    for _ in range(MAX_COUNTING_ATTEMPTS):
        try:
            effects = coordinator.handle(ApiKey.LIST_GROUPS, everything, Caller(None, "", "", LISTING_VERSION), 0)
            groups: list[Message] = effects.replies[0].body["groups"]
            return groups
        except RuntimeError:  # the groups changed while they were walked through
            continue
    return []


def _merge_listings(answers: list[Message]) -> Message:
    for answer in answers:
        if answer.get("error_code"):
            return answer
    return {"groups": [group for answer in answers for group in answer["groups"]]}


def group_settings(broker: BrokerState) -> GroupSettings:
    values = broker.config.values
    chosen: dict[str, Any] = {
        field.name: values[field.name.replace("_", ".")]
        for field in fields(GroupSettings)
        if field.name.replace("_", ".") in values
    }
    chosen["offsets_retention_ms"] = int(values["offsets.retention.minutes"]) * MINUTE_MS  # type: ignore[arg-type]
    chosen["group_consumer_migration_policy"] = chosen["group_consumer_migration_policy"].lower()
    state = broker.controller.state

    def overrides(group_id: str) -> GroupOverrides:
        texts = state.configs(ConfigResource(ResourceType.GROUP, group_id))
        if not texts:
            return NO_OVERRIDES
        numbers = {name: int(texts[name]) for name in GROUP_KEYS if name in texts}
        return GroupOverrides(numbers.get(SESSION_TIMEOUT), numbers.get(HEARTBEAT_INTERVAL))

    return GroupSettings(**chosen, overrides=overrides)


class ClusterTopics:
    """The controller's topics, as coordinators may see them: `oncelog.coordinator.effects.TopicsView`."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def partition_count(self, name: str) -> int | None:
        topic = self._state.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> UUID | None:
        topic = self._state.topics.get(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._state.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return list(self._state.topics)
