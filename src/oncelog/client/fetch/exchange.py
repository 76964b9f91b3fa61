"""Fetch requests and their answers: one to each broker at a time, within the bounds of the inbox.

Owns sessions, what is in flight, and what an answer means for each partition in it. Never moves a position: it says
what it found (`Positions.leave`), or puts data into the inbox.

A request costs what changed since the last one, not what is assigned: `Positions.changed` names the partitions to look
at again, and each broker keeps what it is asked for. Besides, only those are looked at with every poll that wait for
the time or for the reader.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final, NamedTuple

from oncelog.client.fetch.batches import batches_end
from oncelog.client.fetch.complaints import Complaints
from oncelog.client.fetch.counters import FetchCounters
from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.leaders import Leaders
from oncelog.client.fetch.lookups import NEVER_MS
from oncelog.client.fetch.partitions import MAX_WAITING, OutOfRange, PartitionState, Stage, Truncated
from oncelog.client.fetch.positions import Positions
from oncelog.client.fetch.sessions import FetchSession, Key
from oncelog.client.fetch.settings import Backoff, FetchSettings
from oncelog.client.fetch.verdict import Verdict, verdict_of
from oncelog.client.metadata import NO_LEADER
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.client.occasional import OccasionalWarning
from oncelog.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.printable import clause, counted
from oncelog.records.model import MAX_OFFSET
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from oncelog.wire.hot import FIRST_WITH_TOPIC_IDS

logger = logging.getLogger(__name__)

_SESSION_ERRORS = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)


UNUSUAL_ATTEMPTS = 5
"""So many failures of a partition in a row are worth a warning; fewer are what a change of leaders costs."""
MAX_HASTY_HINTS = 2
"""So many times in a row a broker may name another leader that is asked at once; then a pause comes first."""
MAX_HASTY_ANSWERS = 10
"""So many answers in a row may come at once although there is nothing to tell; then the broker is given a rest."""


class Asked(NamedTuple):
    """A partition as it was when it was asked for."""

    state: PartitionState
    seek_count: int
    fetch_offset: int
    leader_epoch: int

    @property
    def is_current(self) -> bool:
        return self.seek_count == self.state.seek_count and self.state.stage is Stage.FETCHING


class FetchTag(NamedTuple):
    """One Fetch request in flight."""

    node_id: int
    asked: dict[Key, Asked]
    was_full: bool
    reserved_bytes: int


class _Source:
    """A broker that is read from. NO_LEADER stands for the leader that nobody knows."""

    __slots__ = ("asked", "by_id", "keys", "nameless", "news", "session", "wanted")

    def __init__(self) -> None:
        self.session = FetchSession()
        self.wanted: dict[PartitionState, None] = {}
        self.news: dict[PartitionState, None] = {}
        """Wanted or not: what it was not asked for yet, or otherwise."""
        self.nameless: set[PartitionState] = set()
        """Those wanted whose topic has no id, as far as is known."""
        self.by_id = False
        self.keys: dict[PartitionState, Key] = {}
        self.asked: dict[Key, Asked] = {}
        """What the last request asked for, or those before it in its session."""

    def want(self, state: PartitionState) -> None:
        self.wanted[state] = self.news[state] = None
        if state.topic_id is None:
            self.nameless.add(state)
        else:
            self.nameless.discard(state)

    def leave(self, state: PartitionState) -> None:
        if state in self.wanted:
            del self.wanted[state]
            self.nameless.discard(state)
            if state in self.keys:
                self.news[state] = None
            else:
                self.news.pop(state, None)

    def name_anew(self, by_id: bool) -> None:
        self.by_id = by_id
        self.session.drop_all()
        self.keys.clear()
        self.asked.clear()
        self.news = dict(self.wanted)

    def ask(self, max_bytes: int) -> None:
        """Put into the session what the last request did not say."""
        news, self.news = self.news, {}
        for state in news:
            key = self._key(state) if state in self.wanted else None
            before = self.keys.pop(state, None)
            if before is not None and before != key:
                self._take_back(state, before)
            if key is not None:
                self._ask_for(state, key, max_bytes)

    def _key(self, state: PartitionState) -> Key:
        topic, index = state.partition
        if not self.by_id:
            return topic, index
        assert state.topic_id is not None
        return state.topic_id, index

    def _take_back(self, state: PartitionState, key: Key) -> None:
        asked = self.asked.get(key)
        if asked is not None and asked.state is state:  # else it was assigned again, and is another state by now
            del self.asked[key]
            self.session.drop(key)

    def _ask_for(self, state: PartitionState, key: Key, max_bytes: int) -> None:
        offset, epoch = state.fetch_offset, state.leader_epoch
        self.keys[state] = key
        self.asked[key] = Asked(state, state.seek_count, offset, epoch)
        self.session.want(key, FetchPartition(key[1], epoch, offset, NO_LEADER_EPOCH, NO_OFFSET, max_bytes))


class Exchange:
    def __init__(
        self,
        settings: FetchSettings,
        network: Network,
        metadata: MetadataCache,
        inbox: Inbox,
        positions: Positions,
        leaders: Leaders,
        complaints: Complaints,
        backoff: Backoff,
        counters: FetchCounters,
    ) -> None:
        self._settings = settings
        self._network = network
        self._metadata = metadata
        self._inbox = inbox
        self._positions = positions
        self._leaders = leaders
        self._complaints = complaints
        self._backoff = backoff
        self._counters = counters
        self._sources: dict[int, _Source] = {}
        self._source_of: dict[PartitionState, int] = {}
        """Where each is wanted that is to be fetched now."""
        self._later: set[PartitionState] = set()
        """Those that will be, or will be elsewhere, when a time has come or the reader has read."""
        self._in_flight: dict[int, FetchTag] = {}
        self._reserved_bytes = 0
        self._hasty: dict[int, int] = {}
        """By broker: answers in a row that came too early for what they told."""
        self._rest_until_ms: dict[int, int] = {}
        self._turn = 0
        self._warning = OccasionalWarning(logger)
        self._partition_bytes = min(settings.max_partition_bytes, settings.max_bytes, inbox.max_bytes // 2)
        """What one partition may bring at a time; half of the inbox at most, or a paused one could fill it alone."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> int:
        """Asks every broker that is free; returns when the next partition is due."""
        wake_ms = self._look_again(now_ms)
        groups = [(node_id, source) for node_id, source in self._sources.items() if source.wanted]
        self._turn += 1
        first = self._turn % len(groups) if groups else 0  # where room is scarce, no broker is always the last
        for node_id, source in groups[first:] + groups[:first]:
            if node_id in self._in_flight:
                continue
            rest_until_ms = self._rest_until_ms.get(node_id, 0)
            if rest_until_ms > now_ms:
                wake_ms = min(wake_ms, rest_until_ms)
            elif self._can_ask(node_id, source.wanted, now_ms):
                self._ask(node_id, source, now_ms)
        return wake_ms

    def _look_again(self, now_ms: int) -> int:
        """At what may be different since the last time; returns when more may be."""
        changed = self._positions.changed
        wake_ms = NEVER_MS
        while changed or self._later:
            due = {**dict.fromkeys(self._later), **changed}
            changed.clear()
            self._later.clear()
            for state in due:
                wake_ms = min(wake_ms, self._place(state, now_ms))
            if not changed:  # else a replica was left
                break
        return wake_ms

    def _place(self, state: PartitionState, now_ms: int) -> int:
        """Among those that are wanted from a broker, or not. Returns when that is to be looked at again."""
        node_id, due_ms = None, NEVER_MS
        if state.stage is Stage.FETCHING and not state.is_paused and self._positions.is_assigned(state):
            if state.retry_at_ms > now_ms:
                due_ms = state.retry_at_ms
                self._later.add(state)
            elif state.read_replica != NO_LEADER and now_ms >= state.read_replica_until_ms:
                self._leave_replica(state)
            elif self._has_too_much(state):
                self._later.add(state)
            else:
                node_id = state.leader if state.read_replica == NO_LEADER else state.read_replica
                if state.read_replica != NO_LEADER:
                    self._later.add(state)
        before = self._source_of.get(state)
        if before is not None and before != node_id:
            self._sources[before].leave(state)
            del self._source_of[state]
        if node_id is not None:
            self._source_of[state] = node_id
            self._sources.setdefault(node_id, _Source()).want(state)
        return due_ms

    def _has_too_much(self, state: PartitionState) -> bool:
        if state.waiting < MAX_WAITING:
            return False
        self._inbox.is_awaited = True  # said before we look again: the reader takes before it looks who waits
        return state.waiting >= MAX_WAITING

    def _room(self) -> int:
        return self._inbox.max_bytes - self._inbox.buffered_bytes - self._reserved_bytes

    def _can_ask(self, node_id: int, wanted: Collection[PartitionState], now_ms: int) -> bool:
        if node_id == NO_LEADER:
            for topic in {state.partition.topic for state in wanted}:
                self._leaders.can_ask(NO_LEADER, topic, now_ms)
            return False
        if self._leaders.is_ready(node_id, now_ms):
            return True
        if self._network.is_unreachable(node_id, now_ms):
            for state in wanted:
                self._give_up_replica(state, node_id, now_ms)
        return False

    def _give_up_replica(self, state: PartitionState, node_id: int, now_ms: int) -> None:
        """The leader may send us there again at once: not without a pause."""
        if state.read_replica == node_id:
            self._leave_replica(state)
            self._pause(state, now_ms, f"broker {node_id}, which its leader named, cannot be read from")

    def _leave_replica(self, state: PartitionState) -> None:
        """The leader is read from again, until it says otherwise."""
        state.read_replica = NO_LEADER
        self._positions.changed[state] = None

    def _ask(self, node_id: int, source: _Source, now_ms: int) -> None:
        room = self._room()
        if room < self._partition_bytes:
            self._inbox.is_awaited = True
            room = self._room()
            if room < self._partition_bytes:
                return
        by_id = self._speaks_ids(node_id, source)
        if by_id is None:
            return
        if by_id != source.by_id:
            source.name_anew(by_id)
        source.ask(self._partition_bytes)
        session = source.session
        topics, forgotten = session.say(self._turn)
        max_bytes = min(self._settings.max_bytes, room)
        request = FetchRequest(
            self._settings.max_wait_ms,
            self._settings.min_bytes,
            max_bytes,
            self._settings.isolation_level,
            session.session_id,
            session.epoch,
            topics,
            forgotten,
            self._settings.rack,
        )
        reserved_bytes = min(max_bytes, len(source.wanted) * self._partition_bytes)
        tag = FetchTag(node_id, source.asked, session.is_full, reserved_bytes)
        self._in_flight[node_id] = tag
        self._reserved_bytes += reserved_bytes
        max_version = None if by_id else FIRST_WITH_TOPIC_IDS - 1
        held_ms = self._settings.max_wait_ms
        self._network.send(node_id, ApiKey.FETCH, request, now_ms, tag=tag, max_version=max_version, held_ms=held_ms)

    def _speaks_ids(self, node_id: int, source: _Source) -> bool | None:
        """Whether topics are named by their ids; None where nothing can be fetched from the broker at all."""
        try:
            version = self._network.version_of(node_id, ApiKey.FETCH)
        except UnsupportedVersion as error:
            self._complaints.add_once(f"broker {node_id}", error)
            return None
        return version >= FIRST_WITH_TOPIC_IDS and not source.nameless

    # --- answers ----------------------------------------------------------------------------------------------------

    def handle(self, tag: FetchTag, event: Event, now_ms: int) -> None:
        del self._in_flight[tag.node_id]
        self._reserved_bytes -= tag.reserved_bytes
        if isinstance(event, Lost):
            self._lost(tag, event, now_ms)
        else:
            self._answered(tag, event, now_ms)

    def _lost(self, tag: FetchTag, event: Lost, now_ms: int) -> None:
        self._sources[tag.node_id].session.restart()
        self._metadata.mark_stale()
        for asked in tag.asked.values():
            if event.kind in (LostKind.RUBBISH, LostKind.UNSUPPORTED):
                self._pause(asked.state, now_ms, event.reason)
            self._give_up_replica(asked.state, tag.node_id, now_ms)

    def _answered(self, tag: FetchTag, event: Answered, now_ms: int) -> None:
        response: FetchResponse = event.body
        if response.throttle_ms > 0:
            self._network.throttle(tag.node_id, now_ms + response.throttle_ms)
        answers: dict[Key, FetchedPartition] = {
            (topic.topic_id or topic.name, one.index): one for topic in response.topics for one in topic.partitions
        }
        self._sources[tag.node_id].session.learned(response.error_code, response.session_id, answers)
        if response.error_code:
            self._refused(tag, response.error_code, now_ms)
            return
        fetched = []
        total_bytes = 0
        for key, answer in answers.items():
            asked = tag.asked.get(key)
            total_bytes += len(answer.records or b"")
            if asked is not None and asked.is_current and self._take(tag, asked, answer, response, now_ms):
                fetched.append((asked, answer))
        self._counters.answered(now_ms - event.sent_ms, total_bytes, response.throttle_ms)
        has_news = total_bytes > 0 or any(one.error_code or one.preferred_read_replica >= 0 for one in answers.values())
        self._watch_haste(tag.node_id, has_news, now_ms - event.sent_ms, now_ms)
        if fetched:
            frame = Frame(total_bytes, len(fetched))
            self._inbox.put(
                [
                    FetchedData(state, seek_count, offset, answer.records, answer.aborted or (), frame)
                    for (state, seek_count, offset, _), answer in fetched
                ]
            )

    def _watch_haste(self, node_id: int, has_news: bool, elapsed_ms: int, now_ms: int) -> None:
        """A broker waits for data, unless the user wants it otherwise. One that does not must not keep us busy."""
        waits = self._settings.min_bytes > 0 and 2 * elapsed_ms < self._settings.max_wait_ms
        hasty = self._hasty.get(node_id, 0) + 1 if waits and not has_news else 0
        self._hasty[node_id] = hasty
        if hasty > MAX_HASTY_ANSWERS:
            self._rest_until_ms[node_id] = now_ms + self._backoff.after(hasty - MAX_HASTY_ANSWERS)

    def _refused(self, tag: FetchTag, error_code: int, now_ms: int) -> None:
        """The whole request was. A broker that forgot a session is told everything at once, but not time and again."""
        if error_code in _SESSION_ERRORS and not tag.was_full:
            return
        self._metadata.mark_stale()
        for asked in tag.asked.values():
            self._pause(asked.state, now_ms, error_for_code(error_code).message)

    def _take(
        self, tag: FetchTag, asked: Asked, answer: FetchedPartition, response: FetchResponse, now_ms: int
    ) -> bool:
        """Whether there is data to read."""
        state = asked.state
        if answer.error_code:
            self._failed(tag, asked, answer, response, now_ms)
            return False
        if answer.diverging_epoch is not None:
            epoch, end_offset = answer.diverging_epoch
            self._positions.leave(state, Truncated(min(end_offset, asked.fetch_offset), epoch), now_ms)
            return False
        if answer.high_watermark >= 0:
            state.high_watermark = answer.high_watermark
        if answer.last_stable_offset >= 0:
            state.last_stable_offset = answer.last_stable_offset
        if answer.log_start_offset >= 0:
            state.log_start_offset = answer.log_start_offset
        if answer.records:
            return self._advance(asked, answer.records, now_ms)
        if answer.preferred_read_replica in (NO_LEADER, tag.node_id):
            self._succeeded(asked)
        elif state.read_replica == tag.node_id:  # only a leader knows who else has what
            self._leave_replica(state)
            self._pause(state, now_ms, f"a follower sent us on to broker {answer.preferred_read_replica}")
        else:
            self._go_to_replica(state, answer.preferred_read_replica, now_ms)
        return False

    def _advance(self, asked: Asked, records: memoryview, now_ms: int) -> bool:
        """The next fetch begins behind these."""
        state = asked.state
        end = batches_end(records)
        if end is None or not asked.fetch_offset < end.next_offset <= MAX_OFFSET + 1:
            found = "no whole batch" if end is None else f"batches up to offset {end.next_offset}"
            error = CorruptMessage(f"{state.partition} at offset {asked.fetch_offset}: {found} came")
            self._complaints.add_ahead(state, error)
            self._pause(state, now_ms, error.message)
            return False
        state.fetch_offset, state.fetch_epoch = end
        self._positions.changed[state] = None
        if end.leader_epoch > asked.leader_epoch >= 0:
            self._metadata.mark_stale()  # it was written by a leader that we have not heard of
        self._succeeded(asked)
        return True

    def _succeeded(self, asked: Asked) -> None:
        state = asked.state
        state.trusted_epoch = max(state.trusted_epoch, asked.leader_epoch)
        state.departures = 0
        if state.attempts:
            state.succeeded()
            self._complaints.went_on(state)

    def _go_to_replica(self, state: PartitionState, node_id: int, now_ms: int) -> None:
        if not self._network.knows(node_id):
            self._metadata.mark_stale()
            self._pause(state, now_ms, f"its leader sends us to broker {node_id}, which is not in the metadata")
            return
        state.read_replica = node_id
        state.read_replica_until_ms = now_ms + self._settings.read_replica_ms
        self._positions.changed[state] = None

    # --- errors -----------------------------------------------------------------------------------------------------

    def _failed(
        self, tag: FetchTag, asked: Asked, answer: FetchedPartition, response: FetchResponse, now_ms: int
    ) -> None:
        state = asked.state
        verdict = verdict_of(answer.error_code)
        is_replica = state.read_replica == tag.node_id
        if is_replica:
            self._leave_replica(state)
        if verdict is Verdict.OUT_OF_RANGE and not is_replica:
            self._positions.leave(state, OutOfRange(), now_ms)
            return
        if verdict is Verdict.TELL:
            self._complaints.add_ahead(state, error_for_code(answer.error_code, _explained(state, answer.error_code)))
        elif verdict is Verdict.ELSEWHERE:
            self._metadata.mark_stale()
            if self._leaders.hint(state, answer.current_leader, response.node_endpoints):
                self._positions.changed[state] = None
                self._positions.led_by_another(state)
                if state.attempts < MAX_HASTY_HINTS:
                    state.failed(now_ms)
                    return
        self._pause(state, now_ms, _what_is_wrong(answer.error_code))

    def _pause(self, state: PartitionState, now_ms: int, why: str) -> None:
        pause_ms = self._backoff.after(state.attempts + 1)
        state.failed(now_ms + pause_ms)
        self._positions.changed[state] = None
        if state.attempts >= UNUSUAL_ATTEMPTS:
            self._warning.give(
                now_ms,
                "%s cannot be read at offset %d after %s: %s; asking again in %d ms",
                state.partition,
                state.fetch_offset,
                counted(state.attempts, "attempt"),
                clause(why),
                pause_ms,
            )


DAMAGED_AT_REST: Final = "the broker's log is damaged there"
WHAT_TO_DO: Final = (
    "; `oncelog doctor DIR --deep` on the broker's data folder says which offsets; to go on without them, seek() past "
    "the last one (`oncelog consume --partition P --offset N`)"
)
"""How far the damage goes only the broker's disk tells."""


def _explained(state: PartitionState, error_code: int) -> str:
    told = f"{state.partition} at offset {state.fetch_offset}: {_what_is_wrong(error_code)}"
    return told + WHAT_TO_DO if error_code == CorruptMessage.code else told


def _what_is_wrong(error_code: int) -> str:
    """What a broker reads is on its disk."""
    return DAMAGED_AT_REST if error_code == CorruptMessage.code else error_for_code(error_code).message
