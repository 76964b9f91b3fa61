"""Incremental fetch sessions (KIP-227): a client names its partitions once, then sends and receives only what changed.

Owns the cached sessions and the rules of ids and epochs. Never reads a log and never decides what data is returned:
it says which view of partitions a request means (see `fetch_view`). A session has one fetch that is not answered at a
time: the next one of its client, or its end, has the one before answered with what there is.

Bounds: at most `max_slots` sessions, of `MAX_SESSION_PARTITIONS` each and `MAX_KEPT_PARTITIONS` together. A full cache
gives up the sessions that were idle longest, if that was longer than `MIN_EVICTION_AGE_MS`, else the newcomer is served
without a session, as Kafka does. So is who begins with more than `MAX_UNKNOWN_PARTITIONS` that do not exist: a session
outlives its client, and nobody else pays for names that were made up. Left out: the precedence that Kafka gives to
followers and to larger sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from oncelog.broker.fetch_view import NO_SESSION, CachedPartition, FetchContext, FetchView, TopicKey
from oncelog.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from oncelog.wire.fetch import FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_AGE_MS = 120_000

MAX_SESSION_PARTITIONS = 20_000
"""How many partitions one session may hold."""

MAX_KEPT_PARTITIONS = 100_000
"""How many all of them may hold, at some 800 bytes each with what watches them: ten consumers of 10,000 partitions."""

MAX_UNKNOWN_PARTITIONS = 100
"""How many partitions that do not exist a session may begin with: those of topics that were just deleted."""

PartitionsOf = Callable[[TopicKey], Container[int]]
"""Those that a topic has; nothing if it does not exist."""


class FetchSession:
    __slots__ = ("counted", "epoch", "last_used_ms", "session_id", "uses_topic_ids", "view")

    def __init__(self, session_id: int, uses_topic_ids: bool, view: FetchView) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.view = view
        self.epoch = 1
        self.last_used_ms = 0
        self.counted = 0
        """Its partitions, as the cache has counted them."""

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class FetchSessionCache:
    def __init__(
        self,
        max_slots: int,
        new_id: Callable[[], int],
        partitions_of: PartitionsOf,
        unwatch: Callable[[CachedPartition], None],
    ) -> None:
        """`unwatch` is for partitions that a session has forgotten."""
        self._max_slots = max_slots
        self._new_id = new_id
        self._partitions_of = partitions_of
        self._unwatch = unwatch
        self.kept_partitions = 0
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext | None:
        """None for a fetch without a session. Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch or
        FetchSessionTopicIdError."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            if request.session_epoch == INITIAL_EPOCH and request.topics:
                return self._create(request, uses_topic_ids, now_ms)
            return None
        return self._continue(request, uses_topic_ids, now_ms)

    def withhold(self, context: FetchContext) -> int:
        """The session id of an answer that tells nothing because its client is throttled. A session that would begin
        with it does not: the client was not told of any partition and asks for all of them again."""
        if not context.begins_session:
            return context.session_id
        self._close(context.session_id)
        return NO_SESSION

    def _continue(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext | None:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} is not known here")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {request.session_id} expects epoch {session.epoch}, got {request.session_epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {request.session_id} cannot switch between names and ids")
        if session.view.finish is not None:
            session.view.finish()
        changed = session.view.update(request)
        self._count(session)
        if session.counted > MAX_SESSION_PARTITIONS or self.kept_partitions > MAX_KEPT_PARTITIONS:
            self._close(session.session_id)
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} has grown too large; fetch without one")
        session.advance_epoch()
        self._touch(session, now_ms)
        if not session.view.count:
            self._close(session.session_id)
            return None
        return FetchContext(session.view, changed, is_full=False, session_id=session.session_id)

    def _create(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext | None:
        count = sum(len(topic.partitions) for topic in request.topics)
        if not 0 < count <= MAX_SESSION_PARTITIONS or self._names_many_unknown(request):
            return None
        while len(self._sessions) >= self._max_slots or self.kept_partitions + count > MAX_KEPT_PARTITIONS:
            if not self._evict(now_ms):
                return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, FetchView(self._unwatch))
        changed = session.view.replace(request)
        self._count(session)
        self._touch(session, now_ms)
        return FetchContext(session.view, changed, is_full=True, session_id=session_id)

    def _names_many_unknown(self, request: FetchRequest) -> bool:
        unknown = 0
        for name, topic_id, partitions in request.topics:
            known = self._partitions_of(TopicKey(name, topic_id))
            unknown += sum(partition.index not in known for partition in partitions)
        return unknown > MAX_UNKNOWN_PARTITIONS

    def _evict(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < MIN_EVICTION_AGE_MS:
            return False
        self._close(oldest.session_id)
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.kept_partitions -= session.counted
        if session.view.finish is not None:
            session.view.finish()
        session.view.close()

    def _count(self, session: FetchSession) -> None:
        self.kept_partitions += session.view.count - session.counted
        session.counted = session.view.count

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = session
