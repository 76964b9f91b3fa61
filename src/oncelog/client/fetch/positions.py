"""Where each partition is read from, and what becomes of a position that leads nowhere.

Owns the states of the partitions and every change of their stage: seeks, resets by `auto.offset.reset`, the check after
a change of leader, a topic that was created again. Asks no broker itself and fetches nothing.

A position that has lost its place in the log is not changed at once: what was fetched before is read to its end first
(`Stage.LEAVING`). So nothing that was fetched is lost, and no position moves under its reader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from oncelog.client.consumer_errors import LogTruncated, NoOffsetForPartition, PositionOutOfRange
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.fetch.complaints import Complaints
from oncelog.client.fetch.leaders import Leaders, Leadership
from oncelog.client.fetch.lookups import NEVER_MS, Found, Lookups, Question
from oncelog.client.fetch.partitions import (
    LATEST,
    Departure,
    PartitionState,
    Recreated,
    Stage,
    Truncated,
)
from oncelog.client.fetch.settings import Ago, Backoff, FetchSettings
from oncelog.client.metadata import NO_LEADER
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.occasional import OccasionalWarning
from oncelog.errors import NONE, KafkaError, UnknownTopicId
from oncelog.types import NO_LEADER_EPOCH, TopicPartition

logger = logging.getLogger(__name__)

_HAS_POSITION = (Stage.FETCHING, Stage.VALIDATING)


class Positions:
    def __init__(
        self,
        settings: FetchSettings,
        states: dict[TopicPartition, PartitionState],
        metadata: MetadataCache,
        leaders: Leaders,
        lookups: Lookups,
        complaints: Complaints,
        backoff: Backoff,
        wall_ms: Callable[[], int],
    ) -> None:
        self._reset = settings.reset
        self._states = states
        self._metadata = metadata
        self._leaders = leaders
        self._lookups = lookups
        self._complaints = complaints
        self._backoff = backoff
        self._wall_ms = wall_ms
        self._warning = OccasionalWarning(logger)
        self._resets: dict[PartitionState, Question] = {}
        self._answers_seen = metadata.answers
        self._known_topics: set[str] = set()
        self._unpositioned: dict[PartitionState, None] = {}
        self.unsettled: set[PartitionState] = set()
        """Those that wait for something other than data: to be looked at with every poll."""
        self.changed: dict[PartitionState, None] = {}
        """Of whom something may be different that matters to a fetch: whether, from whom, or from where on it is to be
        read. Emptied by whoever fetches: thousands that did not change cost nothing."""

    def is_assigned(self, state: PartitionState) -> bool:
        return self._states.get(state.partition) is state

    def unpositioned(self) -> list[PartitionState]:
        """Those that wait for `seek` or `reset`."""
        return list(self._unpositioned)

    # --- what users and groups decide -------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        for partition in [one for one in self._states if one not in partitions]:
            state = self._states.pop(partition)
            self._jump(state, None)  # its data is on nobody's behalf any more
            self.unsettled.discard(state)
            self._unpositioned.pop(state, None)
        for partition in partitions:
            if partition not in self._states:
                state = self._states[partition] = PartitionState(partition)
                self._unpositioned[state] = None
                told = self._leaders.told(partition)
                if told is not None:
                    self._learn(state, told)

    def seek(self, state: PartitionState, offset: int, leader_epoch: int) -> None:
        state.departures = 0
        self._jump(state, offset, leader_epoch)
        self._enter(state)

    def reset(self, state: PartitionState, spec: int | None) -> None:
        if spec is None:
            spec = self._policy()
        self._jump(state, None)
        self._unpositioned.pop(state, None)
        if spec is None:
            state.stage = Stage.HELD
            self._complaints.add(NoOffsetForPartition([state.partition]))
        else:
            self._look_up(state, spec)

    def pause(self, state: PartitionState) -> None:
        state.is_paused = True
        self.changed[state] = None

    def resume(self, state: PartitionState) -> None:
        if state.has_dropped:
            self.fetch_again(state)
        state.is_paused = False
        self.changed[state] = None

    def fetch_again(self, state: PartitionState) -> None:
        state.rewind()
        self.changed[state] = None
        if state.stage in (*_HAS_POSITION, Stage.LEAVING) and not isinstance(state.departure, Recreated):
            self._enter(state)

    # --- what brokers tell ------------------------------------------------------------------------------------------

    def learn_leaders(self) -> None:
        """Metadata may have come."""
        if self._metadata.answers == self._answers_seen:
            return
        self._answers_seen = self._metadata.answers
        for topic in {partition.topic for partition in self._states}:
            error_code = self._metadata.topic_errors.get(topic, NONE)
            self._complaints.judge_topic(topic, error_code, topic in self._known_topics)
        for state in self._states.values():
            told = self._leaders.told(state.partition)
            if told is not None:
                self._learn(state, told)

    def _learn(self, state: PartitionState, told: Leadership) -> None:
        self._known_topics.add(state.partition.topic)
        is_other = None not in (state.topic_id, told.topic_id) and state.topic_id != told.topic_id
        if not is_other and told.epoch < state.leader_epoch:
            return  # a broker that lags behind another
        if (state.topic_id, state.leader, state.leader_epoch) == (told.topic_id, told.node_id, told.epoch):
            return
        self.changed[state] = None
        state.topic_id, state.leader, state.leader_epoch = told.topic_id, told.node_id, told.epoch
        if is_other:
            state.high_watermark = state.last_stable_offset = state.log_start_offset = None
            state.read_replica = NO_LEADER
            if state.stage in (*_HAS_POSITION, Stage.LEAVING):
                self.leave(state, Recreated())
        else:
            self.led_by_another(state)

    def led_by_another(self, state: PartitionState) -> None:
        """Whether its log is the one that was read must be known before it is read on."""
        if state.stage in _HAS_POSITION:
            self._enter(state)

    def leave(self, state: PartitionState, departure: Departure, now_ms: int | None = None) -> None:
        """Nothing follows the fetch position. A broker that says so of every position is not believed without a pause:
        `now_ms` is when it said so; None where metadata tells, which is asked for with pauses anyway."""
        if now_ms is not None:
            state.departures += 1
            state.retry_at_ms = 0
            if state.departures > 1:
                self._wait_before_leaving(state, now_ms)
        state.stage = Stage.LEAVING
        state.departure = departure
        self.unsettled.add(state)
        self.changed[state] = None

    def _wait_before_leaving(self, state: PartitionState, now_ms: int) -> None:
        pause_ms = self._backoff.after(state.departures - 1)
        state.retry_at_ms = now_ms + pause_ms
        self._warning.give(
            now_ms,
            "%s: offset %d is outside the log, as the broker says for the %d. time in a row; the position is reset"
            " again in %d ms",
            state.partition,
            state.fetch_offset,
            state.departures,
            pause_ms,
        )

    def trust(self, state: PartitionState) -> None:
        """Its leader has what was read. Failures in a row are counted on until something is fetched: a partition that
        changes its leader with every answer is not to be asked without a pause."""
        state.trusted_epoch = state.leader_epoch
        state.stage = Stage.FETCHING
        state.retry_at_ms = 0
        self.changed[state] = None

    # --- transitions ------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> int:
        """Returns when it wants to be called again, if nothing happens before."""
        wake_ms = NEVER_MS
        for state in list(self.unsettled):
            if state.stage is Stage.LEAVING and state.is_read_to_the_end:
                if state.retry_at_ms > now_ms:
                    wake_ms = min(wake_ms, state.retry_at_ms)
                    continue
                self._depart(state)
            if state.stage not in (Stage.LEAVING, Stage.VALIDATING):
                self.unsettled.discard(state)
        return wake_ms

    def _enter(self, state: PartitionState) -> None:
        """Read on from here, if the log is known to be the one that was read."""
        state.departure = None
        self.changed[state] = None
        self._unpositioned.pop(state, None)
        if state.wants_validation:
            state.stage = Stage.VALIDATING
            self.unsettled.add(state)
        else:
            state.stage = Stage.FETCHING

    def _jump(self, state: PartitionState, offset: int | None, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        question = self._resets.pop(state, None)
        if question is not None:
            question.is_cancelled = True
        state.jump(offset, leader_epoch)
        self.changed[state] = None

    def _depart(self, state: PartitionState) -> None:
        departure = state.departure
        spec = self._policy()
        if spec is None:
            self._complaints.add(_why_held(state))
            state.departure = None
            state.stage = Stage.HELD
        elif isinstance(departure, Truncated) and departure.offset >= 0:
            self._jump(state, departure.offset, departure.leader_epoch)
            state.trusted_epoch = state.leader_epoch
            self._enter(state)
        else:
            self.reset(state, spec)

    def _policy(self) -> int | None:
        """Where `auto.offset.reset` goes; None if the user wants to decide."""
        if isinstance(self._reset, Ago):
            return max(0, self._wall_ms() - self._reset.duration_ms)
        return self._reset

    def _look_up(self, state: PartitionState, spec: int) -> None:
        state.stage = Stage.RESETTING
        self._resets[state] = self._lookups.ask(
            state.partition, spec, lambda result: self._looked_up(state, spec, result)
        )

    def _looked_up(self, state: PartitionState, spec: int, result: Found | KafkaError) -> bool:
        if isinstance(result, KafkaError):
            self._complaints.add_once(str(state.partition), result)
            return False
        if result is None and spec == LATEST:
            return False  # every log has an end: it is asked for again, after a pause
        del self._resets[state]
        if result is None:
            self._look_up(state, LATEST)  # every record is older
            return True
        self._complaints.settle(str(state.partition))
        self._jump(state, result.offset, result.leader_epoch)
        state.trusted_epoch = state.leader_epoch  # who leads now has just said so
        self._enter(state)
        return True


def _why_held(state: PartitionState) -> Exception:
    partition, position = state.partition, state.position
    assert position is not None
    departure = state.departure
    if isinstance(departure, Truncated):
        known = OffsetAndMetadata(departure.offset, "", departure.leader_epoch) if departure.offset >= 0 else None
        return LogTruncated({partition: position}, {partition: known})
    if isinstance(departure, Recreated):
        return UnknownTopicId(
            f"topic {partition.topic!r} was deleted and created again: offset {position} of {partition.partition} was"
            " that of another log, and auto.offset.reset is none. seek() to where reading is to go on, or set"
            " auto.offset.reset to earliest or latest"
        )
    return PositionOutOfRange({partition: position})
