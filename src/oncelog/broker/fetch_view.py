"""The partitions that one client reads, and which of them must be looked at to answer it.

A view is a fetch session's (KIP-227), or that of a connection whose client has no session and names everything anew
each time. Either way a fetch costs what changed since the last one, not what is read. A partition is *due* until it was
looked at since it was named with another position, or its log changed (`FetchPurgatory` tells), and for as long as it
has something to tell by itself: records that are there, an error. All others are at their end, and stand as they were
seen.

Owns the order of the partitions, what is due and what the client has not heard. Never reads a log: whoever does says
what it saw. Bounds are kept by its owners: the cache of sessions, and the purgatory.

Kafka's names: CachedPartition, FetchSession.partitionMap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from oncelog.named_tuple import NamedTuple
from oncelog.types import TopicPartition
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest

if TYPE_CHECKING:
    from oncelog.broker.purgatory import WaitingFetch

NO_SESSION = 0

UNTOLD = -2
"""A watermark that no log can have: the client was told nothing yet."""


class TopicKey(NamedTuple):
    """A topic as the client named it: by name before Fetch v13, by id since."""

    name: str
    topic_id: UUID | None


class PartitionKey(NamedTuple):
    topic: TopicKey
    index: int  # type: ignore[assignment]


class CachedPartition:
    __slots__ = (
        "high_watermark",
        "log_start_offset",
        "piece",
        "place",
        "requested",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "view",
        "watched",
    )

    def __init__(self, view: FetchView, topic: TopicKey, requested: FetchPartition, place: int) -> None:
        self.view = view
        self.topic = topic
        self.requested = requested
        self.place = place
        """In the order in which partitions are read."""
        self.watched: TopicPartition | None = None
        """As which the purgatory knows it."""
        self.high_watermark = self.log_start_offset = UNTOLD
        """As last seen."""
        self.told_high_watermark = self.told_log_start_offset = UNTOLD
        """As the client last heard."""
        self.piece = b""
        """Of an answer, encoded: that there is nothing to read here. As long as the partition is not due."""

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic, self.requested.index)

    def was_told(self, high_watermark: int, log_start_offset: int) -> bool:
        return self.told_high_watermark == high_watermark and self.told_log_start_offset == log_start_offset


_PLACE = attrgetter("place")


class FetchView:
    __slots__ = ("_form", "_next_place", "_unwatch", "count", "due", "finish", "topics", "untold", "waiting")

    def __init__(self, unwatch: Callable[[CachedPartition], None]) -> None:
        self._unwatch = unwatch
        self._next_place = 0
        self.topics: dict[TopicKey, dict[int, CachedPartition]] = {}
        self.count = 0
        self.due: dict[CachedPartition, None] = {}
        self.untold: dict[CachedPartition, None] = {}
        """Those at their end that were seen otherwise than the client has heard."""
        self.waiting: WaitingFetch | None = None
        """The fetch that waits for news of these partitions."""
        self.finish: Callable[[], None] | None = None
        """Answers the fetch that is not answered yet, whatever it waits for."""
        self._form: object = None

    # --- what is read -----------------------------------------------------------------------------------------------

    def update(self, request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
        """Read these as well, or from elsewhere, and forget others. Returns what is otherwise than it was."""
        changed: dict[PartitionKey, FetchPartition] = {}
        for name, topic_id, partitions in request.topics:
            topic = TopicKey(name, topic_id)
            known = self.topics.setdefault(topic, {})
            for requested in partitions:
                cached = known.get(requested.index)
                if cached is None:
                    self._add(topic, known, requested, self._next_place)
                    self._next_place += 1
                else:
                    cached.requested = requested
                    self.due[cached] = None
                changed[PartitionKey(topic, requested.index)] = requested
            if not known:
                del self.topics[topic]
        for name, topic_id, indexes in request.forgotten:
            topic = TopicKey(name, topic_id)
            for index in indexes:
                self.forget(topic, index)
        return changed

    def replace(self, request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
        """Read these in this order, and no others. Returns what is otherwise than it was."""
        changed: dict[PartitionKey, FetchPartition] = {}
        begin = place = self._next_place
        named = 0
        due = self.due
        for name, topic_id, partitions in request.topics:
            topic = TopicKey(name, topic_id)
            known = self.topics.get(topic)
            if known is None:
                if not partitions:
                    continue
                known = self.topics[topic] = {}
            for requested in partitions:
                cached = known.get(requested.index)
                if cached is None:
                    cached = self._add(topic, known, requested, place)
                    changed[PartitionKey(topic, requested.index)] = requested
                    named += 1
                elif cached.place < begin:
                    cached.place = place
                    named += 1
                if cached.requested != requested:
                    cached.requested = requested
                    due[cached] = None
                    changed[PartitionKey(topic, requested.index)] = requested
                place += 1
        self._next_place = place
        if named != self.count:
            self._drop_before(begin)
        return changed

    def _add(
        self, topic: TopicKey, known: dict[int, CachedPartition], requested: FetchPartition, place: int
    ) -> CachedPartition:
        cached = known[requested.index] = CachedPartition(self, topic, requested, place)
        self.count += 1
        self.due[cached] = None
        return cached

    def _drop_before(self, place: int) -> None:
        for topic, known in list(self.topics.items()):
            for index, cached in list(known.items()):
                if cached.place < place:
                    self.forget(topic, index)

    def forget(self, topic: TopicKey, index: int) -> None:
        known = self.topics.get(topic)
        cached = None if known is None else known.pop(index, None)
        if cached is None or known is None:
            return
        if not known:
            del self.topics[topic]
        self.count -= 1
        self.due.pop(cached, None)
        self.untold.pop(cached, None)
        if cached.watched is not None:
            self._unwatch(cached)

    def close(self) -> None:
        """Nobody reads these any more."""
        for cached in self:
            if cached.watched is not None:
                self._unwatch(cached)
        self.topics.clear()
        self.due.clear()
        self.untold.clear()
        self.count = 0

    def __iter__(self) -> Iterator[CachedPartition]:
        for known in self.topics.values():
            yield from known.values()

    @property
    def unwatched_count(self) -> int:
        """How many could not be read so far: there is no log of theirs."""
        return sum(cached.watched is None for cached in self)

    # --- what is to be looked at ------------------------------------------------------------------------------------

    def begin(self, form: object) -> None:
        """`form` is all that decides how a partition is seen and told: version and isolation."""
        if self._form != form:
            self._form = form
            self.due = dict.fromkeys(self)

    def to_read(self) -> list[CachedPartition]:
        """In order. They stay due until `at_end` says otherwise."""
        return sorted(self.due, key=_PLACE)

    def at_end(self, cached: CachedPartition, high_watermark: int, log_start_offset: int) -> bool:
        """There is nothing to read of it until its log changes. Whether the client knows all there is to know."""
        cached.high_watermark = high_watermark
        cached.log_start_offset = log_start_offset
        self.due.pop(cached, None)
        if cached.was_told(high_watermark, log_start_offset):
            self.untold.pop(cached, None)
            return True
        self.untold[cached] = None
        return False

    def told(self, cached: CachedPartition, high_watermark: int, log_start_offset: int) -> None:
        cached.told_high_watermark = high_watermark
        cached.told_log_start_offset = log_start_offset
        self.untold.pop(cached, None)

    def move_to_end(self, cached: CachedPartition) -> None:
        """It gave data: last in line next time, so that none starves."""
        cached.place = self._next_place
        self._next_place += 1


Answers = Sequence[tuple[CachedPartition, FetchedPartition]]
"""What was read, of those that were due and are not at their end."""

Told = dict[TopicKey, list[Any]]
"""`FetchedPartition`, or its bytes where it is encoded already."""


class FetchContext:
    """One fetch request's view: the partitions to read, and what of the answers to send."""

    __slots__ = ("can_wait", "changed", "is_full", "session_id", "view")

    def __init__(
        self,
        view: FetchView,
        changed: Mapping[PartitionKey, FetchPartition],
        *,
        is_full: bool,
        session_id: int = NO_SESSION,
        can_wait: bool = True,
    ) -> None:
        self.view = view
        self.changed = changed
        """What this request names otherwise than the last."""
        self.is_full = is_full
        self.session_id = session_id
        self.can_wait = can_wait

    @property
    def begins_session(self) -> bool:
        return self.is_full and self.session_id != NO_SESSION

    def news(self, answers: Answers) -> Told:
        """What the client must hear: all of a full fetch, of an incremental one what it does not know."""
        told = self._everything(dict(answers)) if self.is_full else self._changes(answers)
        if self.session_id != NO_SESSION:
            for cached, answer in answers:
                self._remember(cached, answer)
            for cached in list(self.view.untold):
                self.view.told(cached, cached.high_watermark, cached.log_start_offset)
        return told

    def _everything(self, answers: dict[CachedPartition, FetchedPartition]) -> Told:
        told: Told = {}
        for topic, known in self.view.topics.items():
            pieces: list[Any] = [cached.piece for cached in known.values()]
            told[topic] = pieces
        if answers:
            for topic, known in self.view.topics.items():
                pieces = told[topic]
                for place, cached in enumerate(known.values()):
                    if cached in answers:
                        pieces[place] = answers[cached]
        return told

    def _changes(self, answers: Answers) -> Told:
        told: Told = {}
        for cached, answer in answers:
            if _is_loud(answer) or not cached.was_told(answer.high_watermark, answer.log_start_offset):
                told.setdefault(cached.topic, []).append(answer)
        for cached in self.view.untold:
            told.setdefault(cached.topic, []).append(cached.piece)
        return told

    def _remember(self, cached: CachedPartition, answer: FetchedPartition) -> None:
        """An error must be repeated until it is gone, and be news again when it comes back."""
        if answer.error_code:
            self.view.told(cached, UNTOLD, UNTOLD)
        else:
            self.view.told(cached, answer.high_watermark, answer.log_start_offset)
        if _size_bytes(answer):
            self.view.move_to_end(cached)


def _is_loud(answer: FetchedPartition) -> bool:
    return answer.error_code != 0 or answer.diverging_epoch is not None or _size_bytes(answer) > 0


def _size_bytes(answer: FetchedPartition) -> int:
    return 0 if answer.records is None else int(answer.records.size_bytes)
