"""All group coordinators of this broker: who coordinates which group, how requests reach them and answers come back.

Decides nothing about a group. Which partitions of `__consumer_offsets` are loaded, and what wakes them, is as for every
coordinated topic.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oncelog.broker.config.group_keys import GROUP_KEYS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from oncelog.broker.coordinated.in_steps import Told, answered, offsets_told, until_durable
from oncelog.broker.coordinated.places import place_of
from oncelog.broker.coordinated.ticket import Gathering, Ticket
from oncelog.broker.coordinated.topic import CoordinatedTopic
from oncelog.broker.coordinated.writing import as_client_knows
from oncelog.broker.groups.answers import MANY_GROUPS, NO_PLACE, refusal
from oncelog.broker.groups.partition import CoordinatedPartition
from oncelog.broker.request import Answer, AnswerSteps, Pending, Request, Stepwise
from oncelog.broker.transaction_entry import Refused, enter, entry_of_offset_commit, has_entered
from oncelog.controller.lane import Steps
from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.controller.topic_names import OFFSETS_TOPIC
from oncelog.controller.topics import NewTopic
from oncelog.coordinator.effects import NO_OVERRIDES, Caller, GroupOverrides, GroupSettings
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.groups import MemberRoom
from oncelog.errors import CoordinatorLoadInProgress, InvalidGroupId, KafkaError, NotCoordinator
from oncelog.log.partition_log import PartitionLog
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
MAX_COUNTING_ATTEMPTS = 10
LISTING_VERSION = 5


class Coordination(CoordinatedTopic[CoordinatedPartition]):
    def __init__(self, broker: BrokerState) -> None:
        super().__init__(broker, OFFSETS_TOPIC)
        self._topics = ClusterTopics(broker.controller.state)
        self._settings = group_settings(broker)
        self._room = MemberRoom()
        self._codec = int(broker.config.values["offsets.topic.compression.codec"])  # type: ignore[arg-type]

    def _new_topic(self) -> NewTopic:
        values = self._broker.config.values
        return NewTopic(
            OFFSETS_TOPIC,
            int(values["offsets.topic.num.partitions"]),  # type: ignore[arg-type]
            int(values["offsets.topic.replication.factor"]),  # type: ignore[arg-type]
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(values["offsets.topic.segment.bytes"])),
            ],
        )

    def _new_partition(self, index: int, log: PartitionLog) -> CoordinatedPartition:
        coordinator = GroupCoordinator(self._settings, self._topics, lambda: str(self._broker.new_id()), self._room)
        return CoordinatedPartition(self._broker, log, coordinator, self._codec, self._partition_failed)

    def check_available(self, group_id: str) -> None:
        """Whether the group's partition can be coordinated here. Raises CoordinatorNotAvailable."""
        self._check_available(place_of(group_id, self._partition_count()))

    # --- requests ---

    def serve(self, request: Request, group_id: str) -> Answer:
        """The answer of the group's coordinator."""
        api_key, body = request.api_key, request.body
        ticket = Ticket(api_key, request.version, body)
        try:
            partition = self._partition(place_of(group_id, self._partition_count()))
        except KafkaError as error:
            return self._refused(ticket, error)
        now_ms = self._timers.now_ms()
        partition.ask(request, body, ticket, now_ms)
        if api_key != ApiKey.OFFSET_COMMIT or self._alarm_ms is None:  # a commit moves deadlines away only
            self._arm(partition, now_ms)
        return ticket.answer or ticket.result(partition.forget)

    def serve_in_transaction(self, request: Request) -> Answer:
        """The answer to a TxnOffsetCommit: the group's partition must be part of the transaction before the group's
        coordinator is asked."""
        body = request.body
        ticket = Ticket(request.api_key, request.version, body)
        producer_id, epoch = body["producer_id"], body["producer_epoch"]
        try:
            if not body["group_id"]:
                raise InvalidGroupId("a group has a name")
            partition = self._partition(place_of(body["group_id"], self._partition_count()))
        except KafkaError as error:
            return self._refused(ticket, error)

        def entered(refused: Refused) -> None:
            error = next(iter(refused.values()), None)
            ticket.attempt(lambda: self._ask_in_transaction(request, ticket, partition, error))

        if has_entered(partition.log, producer_id, epoch):
            entered({})
        else:
            places = [partition.log.topic_partition]
            entry = entry_of_offset_commit(request.version)
            enter(self._broker, entry, body["transactional_id"], producer_id, epoch, places, entered)
        return ticket.answer or ticket.result(partition.forget)

    def _ask_in_transaction(
        self, request: Request, ticket: Ticket, partition: CoordinatedPartition, error: KafkaError | None
    ) -> None:
        if error is None and self._partitions.get(partition.log.topic_partition.partition) is not partition:
            error = NotCoordinator("it was given up while the transaction's coordinator was asked")
        if error is not None:
            ticket.settle(self._refused(ticket, error))
            return
        now_ms = self._timers.now_ms()
        partition.ask_in_transaction(request, ticket, now_ms)
        self._arm(partition, now_ms)

    def serve_many(self, request: Request, amend: Callable[[Message], None] | None = None) -> Answer:
        """Each group's answer from its coordinator, put together. Of several groups each is a step: one may have a
        thousand members. `amend` is what the handler adds to the answers."""
        asked = request.body[MANY_GROUPS[request.api_key].asked]
        if len(asked) > 1:
            return Stepwise(self._many(request, asked, amend))
        answer = self._few(request)
        if amend is not None:
            if isinstance(answer, Pending):
                answer.amend = amend
            elif isinstance(answer, dict):
                amend(answer)
        return answer

    def _many(self, request: Request, asked: list[Any], amend: Callable[[Message], None] | None) -> AnswerSteps:
        """One group after the other; what is told of it is encoded at once."""
        shape = MANY_GROUPS[request.api_key]
        told = Told(self._broker.metrics, request, shape.answered)
        topic = self._state.topics.get(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        places: set[int] = set()
        for one in asked if count else ():
            places.add(place_of(shape.id_of(one), count))
            yield None
        may_load = self._may_load(places)
        for one in asked:
            body = {**request.body, shape.asked: [one]}
            answer = yield from answered(self._few(request._replace(body=body), may_load=may_load))
            if not isinstance(answer, dict):
                return answer
            if amend is not None:
                amend(answer)
            for group in answer[shape.answered]:
                if request.api_key == ApiKey.OFFSET_FETCH:
                    yield from offsets_told(self._broker.metrics, request, group, shape.answered)
                told.add(group)
                yield None
        return {shape.answered: told.encoded}

    def _few(self, request: Request, *, may_load: bool = True) -> Answer:
        shape = MANY_GROUPS[request.api_key]
        body: Message = request.body
        try:
            count = self._partition_count()
        except KafkaError as error:
            return self._refused(Ticket(request.api_key, request.version, body), error)
        parts = shape.split(body, lambda group_id: place_of(group_id, count))
        gathering = Gathering(lambda answers: shape.merge(body, answers))
        may_load = may_load and self._may_load(parts)
        for index, part in parts.items():
            ticket = Ticket(request.api_key, request.version, part)
            gathering.add(ticket)
            self._ask_part(request, index, part, ticket, may_load=may_load)
        return gathering.result()

    def list_groups(self, request: Request) -> Answer:
        """What all coordinators know, put together. The partitions that hold nothing have nothing to say."""
        unloaded = list(self._unloaded())
        if not self._may_load(unloaded):
            self._load_in_background()
            error = CoordinatorLoadInProgress(f"{len(unloaded)} partitions of {OFFSETS_TOPIC} are being loaded")
            return self._refused(Ticket(request.api_key, request.version, request.body), error)
        return Stepwise(self._listed(request, [*dict.fromkeys([*self._partitions, *unloaded])]))

    def _listed(self, request: Request, indexes: list[int]) -> AnswerSteps:
        """One group after the other: there may be very many, and only their encoded form is held."""
        told = Told(self._broker.metrics, request, "groups")
        ticket = Ticket(request.api_key, request.version, request.body)
        for index in indexes:
            try:
                partition = self._partition(index)
                yield None
                for group in partition.coordinator.listing(request.body):
                    if group is not None:
                        told.add(group)
                    yield None
                yield from until_durable(self._broker, partition.log)
            except KafkaError as error:
                return self._refused(ticket, error)
            if self._partitions.get(index) is not partition:
                return self._refused(ticket, NotCoordinator("it was given up while its groups were told"))
        return {"groups": told.encoded}

    def _ask_part(self, request: Request, index: int, body: Message, ticket: Ticket, *, may_load: bool = True) -> None:
        try:
            if index == NO_PLACE:
                raise InvalidGroupId
            partition = self._partition(index, may_load=may_load)
        except KafkaError as error:
            ticket.settle(self._refused(ticket, error))
            return
        now_ms = self._timers.now_ms()
        partition.ask(request, body, ticket, now_ms)
        self._arm(partition, now_ms)

    def _refused(self, ticket: Ticket, error: KafkaError) -> Message:
        return refusal(ticket.api_key, ticket.version, ticket.body, as_client_knows(error))

    # --- the world changes ---

    def topics_changed(self) -> Steps:
        yield from super().topics_changed()
        for partition in self._loaded_partitions():
            if self._partitions.get(partition.log.topic_partition.partition) is partition:
                now_ms = self._timers.now_ms()
                partition.topics_changed(now_ms)
                self._arm(partition, now_ms)
            yield

    def transaction_ended(self, index: int, producer_id: int, is_commit: bool, now_ms: int) -> None:
        """The log of a partition has the marker that ends a producer's transaction. A coordinator that is not loaded
        will find it there."""
        partition = self._partitions.get(index)
        if partition is not None and partition.loading is None:
            partition.coordinator.transaction_ended(producer_id, is_commit)
            self._arm(partition, now_ms)

    # --- numbers ---

    def groups_by_state(self) -> Counter[tuple[str, str]]:
        """By type and state. Asked from the thread of the metrics: if groups come or go meanwhile, it counts again."""
        counted: Counter[tuple[str, str]] = Counter()
        for partition in self._loaded_partitions():
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
