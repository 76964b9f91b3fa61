"""A topic whose partitions are coordinators: which of them are loaded, from when on, and what wakes them.

Owns the loaded partitions, and one alarm for the earliest deadline of all. After a start partitions are loaded one
bounded step at a time in the background, so that what is due happens even if nobody asks: those that somebody has asked
for first, in the order of their asking, then by their numbers. Who asks meanwhile is answered as by Kafka, and comes
again: COORDINATOR_LOAD_IN_PROGRESS. Only what is short is loaded at once. Decides nothing that a coordinator decides.

The time that coordinators are told is the timers': it goes on evenly, whatever happens to the wall clock.
"""

from __future__ import annotations

import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oncelog.broker.coordinated import reading
from oncelog.broker.coordinated.reading import UnreadableRecord
from oncelog.controller.lane import Steps, tell_all
from oncelog.controller.state import Outcome
from oncelog.controller.topics import Created, NewTopic, create_topics
from oncelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    KafkaError,
    NotCoordinator,
)
from oncelog.log.folders import see_doctor
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import MAY_PASS
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

RELOAD_DELAY_MS = 1_000
"""After a write failed: the disk may have recovered by then, and a full one is not tried without pause. After loading
has failed, the first pause."""

MAX_RELOAD_DELAY_MS = 30_000
"""What the pause between two tries to load a partition grows to: the whole log is read each time."""


class Loading(Protocol):
    def step(self) -> bool:
        """Whether there is more. Raises where the log is damaged, or cannot be read (`MAY_PASS`)."""


class Coordinated(Protocol):
    """One partition and its coordinator."""

    log: PartitionLog

    @property
    def loading(self) -> Loading | None:
        """None once the coordinator knows all that the log says."""

    def loaded(self, now_ms: int) -> None:
        """The last step was taken: `loading` is None from now on."""

    def next_deadline_ms(self) -> int | None: ...

    def expire(self, now_ms: int) -> None: ...

    def unload(self) -> None:
        """All who wait hear that this is no coordinator any more."""


P = TypeVar("P", bound=Coordinated)


class CoordinatedTopic(ABC, Generic[P]):
    def __init__(self, broker: BrokerState, name: str) -> None:
        self._broker = broker
        self._name = name
        self._timers = broker.timers
        self._state = broker.controller.state
        self._partitions: dict[int, P] = {}
        self._damaged: set[int] = set()
        """Partitions whose log was read and cannot be believed: they are not tried again."""
        self._paused: set[int] = set()
        """Partitions that could not be read: nobody tries again before a while is over."""
        self._pauses_ms: dict[int, int] = {}
        """How long that was the last time, until it is loaded."""
        self._was_loaded: set[int] = set()
        self._alarm_ms: int | None = None
        self._cancel_alarm: Callable[[], object] = lambda: None
        self._is_loading = False
        self._wanted: dict[int, None] = {}
        """Partitions that were asked for before they were loaded, in their order."""
        self._awaiting_topic: list[Callable[[KafkaError | None], None]] = []
        self._turn = 0
        """Which of the loaded partitions is looked at first when the alarm rings."""

    @abstractmethod
    def _new_topic(self) -> NewTopic:
        """The topic, as Kafka creates it."""

    @abstractmethod
    def _new_partition(self, index: int, log: PartitionLog) -> P: ...

    # --- who coordinates ---

    def when_topic_exists(self, now_ms: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call back when there is the topic, or with what prevents that it is created: at once, unless it must be
        created first. All who ask meanwhile wait for the same one."""
        if self._state.topic(self._name) is not None:
            done(None)
            return
        self._awaiting_topic.append(done)
        if len(self._awaiting_topic) == 1:
            self._broker.controller.propose(self._plan_topic, now_ms, self._topic_created)

    def _plan_topic(self) -> Outcome[Created]:
        broker, state = self._broker, self._state
        if state.topic(self._name) is not None:
            return Outcome([], {})
        return create_topics(state, broker.cluster, broker.config_schema, [self._new_topic()], broker.new_id)

    def _topic_created(self, created: Created | None, error: KafkaError | None) -> None:
        one = None if created is None else created.get(self._name)
        refused = one if isinstance(one, KafkaError) else error
        awaiting, self._awaiting_topic = self._awaiting_topic, []
        tell_all(awaiting, refused)

    def _check_available(self, index: int) -> None:
        """Whether a partition can coordinate. Raises CoordinatorNotAvailable."""
        if index in self._damaged or self._broker.is_offline(self._name, index):
            raise CoordinatorNotAvailable(f"{self._name}-{index} is offline")

    def _partition_count(self) -> int:
        """Raises NotCoordinator, as long as nobody has asked for a coordinator."""
        topic = self._state.topics.get(self._name)
        if topic is None:
            raise NotCoordinator("there is no coordinator yet; ask for it with FindCoordinator")
        return len(topic.partitions)

    def _partition(self, index: int, *, may_load: bool = True) -> P:
        """The partition, loaded: now, if it is short and `may_load`. Raises what a client is told where it is not."""
        partition = self._partitions.get(index)
        if partition is None:
            partition = self._begin(index)
        elif partition.loading is None and not partition.log.offline:
            return partition
        if partition.log.offline:
            self._drop(index, NotCoordinator(f"{partition.log.topic_partition} is offline"))
            raise NotCoordinator(f"the disk behind {self._name}-{index} failed")
        if partition.loading is not None:
            if partition.log.size_bytes <= (reading.SHORT_BYTES if may_load else 0):
                self._load(index, partition)
            else:
                self._wanted.setdefault(index)
                self._load_in_background()
                raise CoordinatorLoadInProgress(f"{self._name}-{index} is being loaded; try again")
        return partition

    def _may_load(self, indexes: Iterable[int]) -> bool:
        """Whether all of these partitions together are short enough to be loaded while somebody waits."""
        unloaded = (index for index in indexes if not self._is_loaded(index))
        logs = (self._broker.logs.logs.get(TopicPartition(self._name, index)) for index in unloaded)
        return sum(log.size_bytes for log in logs if log is not None) <= reading.SHORT_BYTES

    def _is_loaded(self, index: int) -> bool:
        partition = self._partitions.get(index)
        return partition is not None and partition.loading is None

    def _begin(self, index: int) -> P:
        if index in self._damaged:
            raise CoordinatorNotAvailable(f"{self._name}-{index} is damaged; the broker's log says where")
        if index in self._paused:
            raise CoordinatorLoadInProgress(f"{self._name}-{index} could not be read, and will be tried again")
        partition = self._new_partition(index, self._broker.partition(self._name, index))
        self._partitions[index] = partition
        return partition

    # --- loading ---

    def start(self) -> None:
        """After a start of the broker: load whatever was left behind."""
        self._load_in_background()

    def _load_in_background(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._timers.later(0, self._load_next)

    def _load_next(self) -> None:
        self._is_loading = False
        for index in self._to_load():
            try:
                partition = self._partitions.get(index) or self._begin(index)
                self._load(index, partition, one_step=True)
            except KafkaError as error:
                if index not in self._damaged and index not in self._paused:
                    self._pause(index, error)
            self._load_in_background()
            return

    def _to_load(self) -> Iterator[int]:
        """Partitions to be loaded now. Each is loaded, paused or damaged when its step is over, or has more of them."""
        for index in list(self._wanted):
            is_out = index in self._damaged or index in self._paused
            if not is_out and not self._is_loaded(index) and self._holds_something(index):
                yield index
            del self._wanted[index]
        yield from (index for index in self._unloaded() if index not in self._paused)

    def _pause(self, index: int, error: Exception) -> None:
        """Try it again later, and later each time."""
        before_ms = self._pauses_ms.get(index)
        pause_ms = RELOAD_DELAY_MS if before_ms is None else min(2 * before_ms, MAX_RELOAD_DELAY_MS)
        self._pauses_ms[index] = pause_ms
        self._paused.add(index)
        self._timers.later(pause_ms, lambda: self._go_on(index))
        logger.error("%s-%d cannot be loaded, and is tried again in %d ms: %s", self._name, index, pause_ms, error)

    def _go_on(self, index: int) -> None:
        self._paused.discard(index)
        self._load_in_background()

    def _unloaded(self) -> Iterator[int]:
        """Partitions that hold something, and are neither loaded nor beyond help."""
        topic = self._state.topic(self._name)
        for index in topic.partitions if topic is not None else ():
            partition = self._partitions.get(index)
            if partition is not None:
                if partition.loading is not None:
                    yield index
            elif index not in self._damaged and self._holds_something(index):
                yield index

    def _holds_something(self, index: int) -> bool:
        log = self._broker.logs.logs.get(TopicPartition(self._name, index))
        return log is not None and not log.offline and log.log_end_offset > log.log_start_offset

    def _load(self, index: int, partition: P, *, one_step: bool = False) -> None:
        """Raises CoordinatorNotAvailable where the log is damaged: then nobody may believe what it says. Raises
        CoordinatorLoadInProgress where it cannot be read: that may pass, and is tried again from its start."""
        assert partition.loading is not None
        try:
            while partition.loading.step():
                if one_step:
                    return
        except MAY_PASS as error:
            del self._partitions[index]
            self._pause(index, error)
            told = f"{partition.log.topic_partition} could not be read, and will be tried again: {error}"
            raise CoordinatorLoadInProgress(told) from error
        except Exception as error:  # damage, or a bug
            del self._partitions[index]
            self._damaged.add(index)
            self._tell_damage(partition, error)
            raise CoordinatorNotAvailable(f"{self._name}-{index} is damaged; the broker's log says where") from error
        self._pauses_ms.pop(index, None)
        now_ms = self._timers.now_ms()
        partition.loaded(now_ms)
        self._arm(partition, now_ms)
        if one_step and index not in self._was_loaded:
            # It lives on. The collector would walk through all of it again and again while more is loaded, and hold
            # everybody up for longer than any step does. Once: what is frozen and dropped later is never freed.
            gc.freeze()
        self._was_loaded.add(index)

    def _tell_damage(self, partition: P, error: Exception) -> None:
        log, folder = partition.log, self._broker.config.log_dir
        if isinstance(error, UnreadableRecord):
            segments = [*log.segments, log.active_segment]
            path = max((each.base_offset, each.path) for each in segments if each.base_offset <= error.offset)[1]
            logger.error("%s has no coordinator: %s, %s. %s", log.topic_partition, path, error, see_doctor(folder))
        elif isinstance(error, CorruptMessage):  # the log has told which file, and what to do
            logger.error("%s has no coordinator: its log is damaged", log.topic_partition)
        else:
            logger.exception("bug: %s has no coordinator", log.topic_partition)
            return
        logger.debug("where %s could not be loaded", log.topic_partition, exc_info=error)

    def _loaded_partitions(self) -> list[P]:
        """May be asked from any thread."""
        return [partition for partition in list(self._partitions.values()) if partition.loading is None]

    # --- the world changes ---

    def topics_changed(self) -> Steps:
        """Topics were created, grew or were deleted."""
        if self._state.topic(self._name) is None:
            self._damaged.clear()  # the next topic of this name has other logs
            self._paused.clear()
            self._pauses_ms.clear()
        for index, partition in list(self._partitions.items()):
            log = partition.log
            is_gone = log.offline or self._broker.logs.logs.get(log.topic_partition) is not log
            if is_gone and self._partitions.get(index) is partition:
                self._drop(index, NotCoordinator("its topic was deleted"))
                yield

    def log_opened(self, topic_partition: TopicPartition) -> None:
        """A log that could not be opened at the start is open now: what is due there must happen, as after a start."""
        if topic_partition.topic == self._name:
            self._load_in_background()

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """The disk behind a log has failed: if it was a coordinator's, all who wait there must hear."""
        if topic_partition.topic == self._name and topic_partition.partition in self._partitions:
            self._drop(topic_partition.partition, NotCoordinator(f"{topic_partition} is offline"))

    def _partition_failed(self, partition: P, error: KafkaError) -> None:
        index = partition.log.topic_partition.partition
        if self._partitions.get(index) is partition:
            self._drop(index, error)

    def _drop(self, index: int, error: KafkaError) -> None:
        """Forget what the coordinator knew. What the log says is loaded again later, or when somebody asks."""
        logger.error("%s-%d gives its coordinator up: %s", self._name, index, error)
        self._partitions.pop(index).unload()
        self._timers.later(RELOAD_DELAY_MS, self._load_in_background)

    # --- time ---

    def _arm(self, partition: P, now_ms: int) -> None:
        """Deadlines mostly move away (a heartbeat came): an alarm that is too early costs less than a new one."""
        deadline_ms = partition.next_deadline_ms()
        if deadline_ms is None or (self._alarm_ms is not None and self._alarm_ms <= deadline_ms):
            return
        self._cancel_alarm()
        self._alarm_ms = deadline_ms
        self._cancel_alarm = self._timers.later(max(0, deadline_ms - now_ms), self._ring)

    def _ring(self) -> None:
        """One partition at a time, in turn: what is due there may be much, and everybody else goes on in between."""
        self._alarm_ms = None
        now_ms = self._timers.now_ms()
        partitions = self._loaded_partitions()
        for at in range(len(partitions)):
            turn = (self._turn + at) % len(partitions)
            deadline_ms = partitions[turn].next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                self._turn = turn + 1
                self._expire(partitions[turn], now_ms)
                break
        for partition in self._loaded_partitions():
            self._arm(partition, now_ms)

    def _expire(self, partition: P, now_ms: int) -> None:
        try:
            partition.expire(now_ms)
        except Exception:  # the clock goes on for all others
            logger.exception("bug: what is due in %s", partition.log.topic_partition)
