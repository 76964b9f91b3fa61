"""Incremental fetch sessions (KIP-227): a client names its partitions once, then sends and receives only what changed.

Owns the cached sessions and the rules of ids and epochs. Never reads a log and never decides what data is returned:
it says which partitions a request means, and which of the answers the client has yet to hear.

Bounds: at most `max_slots` sessions, of `MAX_SESSION_PARTITIONS` each and `MAX_KEPT_PARTITIONS` together. A full cache
gives up the sessions that were idle longest, if that was longer than `MIN_EVICTION_AGE_MS`, else the newcomer is served
without a session, as Kafka does. So is who begins with more than `MAX_UNKNOWN_PARTITIONS` that do not exist: a session
outlives its client, and nobody else pays for names that were made up. Left out: the precedence that Kafka gives to
followers and to larger sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from oncelog.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_AGE_MS = 120_000

MAX_SESSION_PARTITIONS = 20_000
"""How many partitions one session may hold."""

MAX_KEPT_PARTITIONS = 100_000
"""How many all of them may hold, at some 300 bytes each: ten consumers of 10,000 partitions."""

MAX_UNKNOWN_PARTITIONS = 100
"""How many partitions that do not exist a session may begin with: those of topics that were just deleted."""

UNTOLD = -2
"""A watermark that no log can have: the client was told nothing yet."""


class TopicKey(NamedTuple):
    """A topic as the client named it: by name before Fetch v13, by id since."""

    name: str
    topic_id: UUID | None


class PartitionKey(NamedTuple):
    topic: TopicKey
    index: int  # type: ignore[assignment]


class _Told(NamedTuple):
    """What the client last heard about a partition."""

    high_watermark: int
    log_start_offset: int


_NOTHING = _Told(UNTOLD, UNTOLD)


class FetchSession:
    __slots__ = ("counted", "epoch", "last_used_ms", "partitions", "session_id", "told", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = 0
        self.counted = 0
        """Its partitions, as the cache has counted them."""
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.told: dict[PartitionKey, _Told] = {}

    def update(self, request: FetchRequest) -> None:
        for key, partition in requested_partitions(request):
            self.partitions[key] = partition
        for key in forgotten_partitions(request):
            self.partitions.pop(key, None)
            self.told.pop(key, None)

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class FetchContext:
    """One fetch request's view: the partitions to read, and what of the answers to send."""

    def __init__(
        self, partitions: dict[PartitionKey, FetchPartition], session: FetchSession | None, full: bool
    ) -> None:
        self._session = session
        self._full = full
        self.partitions = partitions

    @property
    def begins_session(self) -> bool:
        return self._full and self._session is not None

    @property
    def session_id(self) -> int:
        return self._session.session_id if self._session else NO_SESSION

    def news(
        self, answers: Iterable[tuple[PartitionKey, FetchedPartition]]
    ) -> list[tuple[PartitionKey, FetchedPartition]]:
        """The answers that the client must hear: all of a full fetch, of an incremental one those with news."""
        session = self._session
        if session is None:
            return list(answers)
        chosen = []
        for key, answer in answers:
            now_told = _Told(answer.high_watermark, answer.log_start_offset)
            has_data = answer.records is not None and answer.records.size_bytes > 0
            is_news = (
                self._full
                or has_data
                or answer.error_code != 0
                or answer.diverging_epoch is not None
                or session.told.get(key, _NOTHING) != now_told
            )
            if not is_news:
                continue
            chosen.append((key, answer))
            if key not in session.partitions:
                continue  # forgotten while this fetch waited
            # An error must be repeated until it is gone, and be news again when it comes back.
            session.told[key] = _NOTHING if answer.error_code else now_told
            if has_data:
                session.partitions[key] = session.partitions.pop(key)  # last in line next time, so none starves
        return chosen


class FetchSessionCache:
    def __init__(self, max_slots: int, new_id: Callable[[], int], exists: Callable[[PartitionKey], bool]) -> None:
        self._max_slots = max_slots
        self._new_id = new_id
        self._exists = exists
        self.kept_partitions = 0
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        """Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch or FetchSessionTopicIdError."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            partitions = dict(requested_partitions(request))
            session = None
            if request.session_epoch == INITIAL_EPOCH and partitions:
                session = self._create(partitions, uses_topic_ids, now_ms)
            return FetchContext(partitions, session, full=True)
        return self._continue(request, uses_topic_ids, now_ms)

    def withhold(self, context: FetchContext) -> int:
        """The session id of an answer that tells nothing because its client is throttled. A session that would begin
        with it does not: the client was not told of any partition and asks for all of them again."""
        if not context.begins_session:
            return context.session_id
        self._close(context.session_id)
        return NO_SESSION

    def _continue(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} is not known here")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {request.session_id} expects epoch {session.epoch}, got {request.session_epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {request.session_id} cannot switch between names and ids")
        session.update(request)
        self._count(session)
        if session.counted > MAX_SESSION_PARTITIONS or self.kept_partitions > MAX_KEPT_PARTITIONS:
            self._close(session.session_id)
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} has grown too large; fetch without one")
        session.advance_epoch()
        self._touch(session, now_ms)
        if not session.partitions:
            self._close(session.session_id)
            return FetchContext({}, None, full=True)
        return FetchContext(dict(session.partitions), session, full=False)

    def _create(
        self, partitions: dict[PartitionKey, FetchPartition], uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        if len(partitions) > MAX_SESSION_PARTITIONS or self._has_many_unknown(partitions):
            return None
        while len(self._sessions) >= self._max_slots or self.kept_partitions + len(partitions) > MAX_KEPT_PARTITIONS:
            if not self._evict(now_ms):
                return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids)
        session.partitions = dict(partitions)
        self._count(session)
        self._touch(session, now_ms)
        return session

    def _has_many_unknown(self, partitions: Iterable[PartitionKey]) -> bool:
        unknown = (key for key in partitions if not self._exists(key))
        return next(islice(unknown, MAX_UNKNOWN_PARTITIONS, None), None) is not None

    def _evict(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < MIN_EVICTION_AGE_MS:
            return False
        self._close(oldest.session_id)
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.kept_partitions -= session.counted

    def _count(self, session: FetchSession) -> None:
        self.kept_partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = session


def requested_partitions(request: FetchRequest) -> Iterable[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        topic_key = TopicKey(topic.name, topic.topic_id)
        for partition in topic.partitions:
            yield PartitionKey(topic_key, partition.index), partition


def forgotten_partitions(request: FetchRequest) -> Iterable[PartitionKey]:
    for name, topic_id, indexes in request.forgotten:
        for index in indexes:
            yield PartitionKey(TopicKey(name, topic_id), index)
