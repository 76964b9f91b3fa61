"""A member of a group of KIP-848: one request, ConsumerGroupHeartbeat, in which the coordinator assigns partitions.

The coordinator computes who gets what and changes an assignment step by step: it takes a partition from one member,
waits until that one says in a heartbeat that it has let it go, and then gives it to the next. So the member's side is
small: hold what is assigned, let go what is not assigned any more when the user is done with it, say so.

A heartbeat says only what changed since the last one that was answered; the first one, the one after a loss or an
error, and one now and then say everything, and hear everything. Topics are assigned by id, and are ours as soon as
metadata tells their names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from enum import Enum, auto
from functools import partial
from uuid import UUID

from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.heartbeat_request import (
    JOIN_EPOCH,
    AssignedIds,
    MemberFields,
    heartbeat_request,
    leave_heartbeat,
    read_assignment,
)
from oncelog.client.membership.member import Member
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipSettings
from oncelog.client.membership.news import Assigned, Revoking
from oncelog.client.membership.offset_commits import OffsetCommits
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.client.occasional import OccasionalWarning
from oncelog.errors import (
    NONE,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidRegularExpression,
    KafkaError,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnsupportedVersion,
    error_for_code,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

FIRST_VERSION_OF_REGEX = 1
FIRST_INTERVAL_MS = 5_000
"""Between heartbeats, until the coordinator says how often it wants them."""
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 5, 60_000
"""What is believed of what it says: a number below would keep both sides busy, one above would end our session."""
FULL_EVERY = 10
"""Every so many heartbeats one says everything. A request that we gave up may reach the coordinator late, and what it
answers nobody hears: it would take us to know, and wait for partitions that we do not give up."""
NOTHING: AssignedIds = frozenset()

_log = logging.getLogger(__name__)


class Phase(Enum):
    OUTSIDE = auto()
    JOINING = auto()
    """The coordinator has not answered the first heartbeat yet."""
    MEMBER = auto()
    LEAVING = auto()
    """The user gives up everything, with heartbeats meanwhile; then the last one is due, or under way."""


TRANSITIONS = {
    (Phase.OUTSIDE, Phase.JOINING),
    (Phase.JOINING, Phase.MEMBER),
    (Phase.JOINING, Phase.LEAVING),
    (Phase.JOINING, Phase.OUTSIDE),
    (Phase.MEMBER, Phase.LEAVING),
    (Phase.MEMBER, Phase.OUTSIDE),
    (Phase.LEAVING, Phase.OUTSIDE),
}


class Kip848Membership(Member):
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        commits: OffsetCommits,
        metadata: MetadataCache,
        jitter: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(settings, link, commits, metadata, jitter)
        commits.tell_member = self._commit_told
        self._member_id = new_id()
        self._phase = Phase.OUTSIDE
        self._epoch = JOIN_EPOCH
        self._target = NOTHING
        self._owned = NOTHING
        self._names: dict[UUID, str] = {}  # of the topics that we own, or are to own
        self._is_new_target = False
        self._seen_cluster: object = None
        self._revoking = NOTHING
        self._began_ms = 0
        self._known: MemberFields | None = None  # by the coordinator
        self._last_fields = MemberFields((), None, NOTHING)
        self._field_sources: tuple[object, ...] = ()
        self._asking: object = None  # stands for the heartbeat under way
        self._has_asked = False  # since we were outside: the coordinator may know of us
        self._ask_at_ms = 0
        self._beats = 0
        self._interval_ms = FIRST_INTERVAL_MS
        self._matches_here = False  # the pattern is none that the coordinator understands
        self._leave_by_ms = 0
        self._warning = OccasionalWarning(_log)

    # --- for the consumer -------------------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        return self._phase is Phase.MEMBER and self._owned == self._target and not self._is_new_target

    @property
    def is_gone(self) -> bool:
        return self._phase is Phase.OUTSIDE

    def subscribe(self, topics: Collection[str] | re.Pattern[str]) -> None:
        super().subscribe(topics)
        self._matches_here = False

    def ask_rebalance(self, reason: str) -> None:
        """The coordinator alone decides when to rebalance; a member can but be heard soon."""
        self._ask_at_ms = 0

    def leave(self, now_ms: int, reason: str) -> None:
        self._unsubscribe()
        if self._phase is Phase.JOINING and not self._has_asked:
            self._forget_place()
        elif self._phase in (Phase.JOINING, Phase.MEMBER):
            asking = self._asking
            self._begin_leaving(now_ms)
            if self._owned:
                self._asking = asking  # its answer may bring the epoch that offset commits need
            self._revoke(self._owned)

    def poll(self, now_ms: int) -> int:
        self._check_user(now_ms)
        refusal = self._take_refusal()
        if refusal is not None and self._phase in (Phase.JOINING, Phase.MEMBER):
            self._fail(refusal)
        topics = self._topics
        if topics is not None:
            self._want_topics(lambda: topics, now_ms)
            if self._phase is Phase.OUTSIDE and self._may_join:
                self._began_ms = now_ms
                self._enter(Phase.JOINING)
        if self._phase is Phase.MEMBER:
            self._reconcile(now_ms)
        if self._asking is None:
            self._beat(now_ms)
        return self._wait_ms(now_ms)

    def _wait_ms(self, now_ms: int) -> int:
        waits_ms = [MAX_POLL_MS, self._user_late_ms(now_ms)]
        if self._phase is not Phase.OUTSIDE and self._asking is None:
            waits_ms.append(self._ask_at_ms - now_ms if now_ms < self._ask_at_ms else self._link.wait_ms(now_ms))
        if self._revoking and self._news.is_clear:
            waits_ms.append(self._give_up_at_ms - now_ms)
        return max(0, min(waits_ms))

    def _enter(self, phase: Phase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{self._phase} -> {phase}"
        self._phase = phase

    # --- the assignment ---------------------------------------------------------------------------------------------

    def _reconcile(self, now_ms: int) -> None:
        """From what we own to what we are to own: give up first, then take over; the next heartbeat says so."""
        if self._revoking:
            if not self._may_let_go(now_ms):
                return
            self._own(self._owned - self._revoking)
            self._revoking = NOTHING
            self._commits.moved_on(self._identity, self._assignment)
        if self._is_new_target:
            self._revoke(self._owned - self._target)
        if not self._revoking and (self._is_new_target or self._seen_cluster is not self._metadata.cluster):
            self._take_over(now_ms)

    def _revoke(self, partitions: AssignedIds) -> None:
        self._revoking = partitions
        if partitions:
            self._news.put(Revoking(self._named(partitions)))

    def _take_over(self, now_ms: int) -> None:
        self._seen_cluster = self._metadata.cluster
        self._learn_names()
        known = frozenset(one for one in self._target if one[0] in self._names)
        if known != self._target:
            self._metadata.mark_stale()
        added = known - self._owned
        if added or self._is_new_target:
            self._is_new_target = False
            self._own(self._owned | added)
            self._news.put(Assigned(self._assignment, self._named(added)))
            self.counters.count_rebalance(now_ms - self._began_ms, now_ms)

    def _learn_names(self) -> None:
        cluster = self._metadata.cluster
        used = {topic_id for topic_id, _ in self._owned | self._target}
        found = {} if cluster is None else {one.topic_id: one.name for one in cluster.topics.values()}
        self._names = {one: self._names.get(one) or found[one] for one in used if one in self._names or one in found}

    def _own(self, partitions: AssignedIds) -> None:
        self._owned = partitions
        self._assignment = self._named(partitions)

    def _named(self, partitions: AssignedIds) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self._names[topic_id], partition) for topic_id, partition in partitions)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def _beat(self, now_ms: int) -> None:
        if self._phase is Phase.LEAVING:
            self._send_leave(now_ms)
        elif self._phase is not Phase.OUTSIDE and not self._is_failed:
            self._send_heartbeat(now_ms)

    def _send_heartbeat(self, now_ms: int) -> None:
        is_due = now_ms >= self._ask_at_ms or (self._known is not None and self._known != self._fields())
        if not is_due or not self._link.is_ready(now_ms):
            return
        if not self._is_understood():
            return
        fields = self._fields()
        self._beats += 1
        known = self._known if self._beats % FULL_EVERY else None
        body = heartbeat_request(self._settings, self._member_id, self._epoch, fields, known)
        self._ask(body, now_ms, partial(self._beaten, fields))

    def _ask(self, body: Message, now_ms: int, ended: Callable[[Event, int], None]) -> None:
        asking = self._asking = object()
        self._has_asked = True
        self._link.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, body, now_ms, partial(self._ended, asking, ended))

    def _ended(self, asking: object, ended: Callable[[Event, int], None], event: Event, now_ms: int) -> None:
        if self._asking is asking:  # otherwise we have turned to something else meanwhile
            self._asking = None
            ended(event, now_ms)

    def _fields(self) -> MemberFields:
        """What we say of ourselves now. Asked at every poll, and put together when something of it is new."""
        sources = (self._choice, self._topics, self._owned, self._matches_here)
        if sources != self._field_sources:
            self._field_sources = sources
            self._last_fields = self._new_fields()
        return self._last_fields

    def _new_fields(self) -> MemberFields:
        if self._phase is Phase.LEAVING and self._known is not None:
            return self._known
        pattern = None if self._choice is None else self._choice.pattern
        if pattern is None or self._matches_here:
            return MemberFields(tuple(sorted(self._topics or ())), None, self._owned)
        prefix = "(?i)" if pattern.flags & re.IGNORECASE else ""
        return MemberFields(None, prefix + pattern.pattern, self._owned)

    def _is_understood(self) -> bool:
        """The coordinator knows this protocol. One that knows its first version only is told the matching names."""
        try:
            version = self._link.version_of(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        except UnsupportedVersion as error:
            self._fail(_too_old(error), final=True)
            return False
        self._matches_here |= version < FIRST_VERSION_OF_REGEX
        return True

    def _beaten(self, fields: MemberFields, event: Event, now_ms: int) -> None:
        if isinstance(event, Lost) or event.body["error_code"] != NONE or event.body["member_epoch"] < 0:
            self._known = None
            self._ask_at_ms = now_ms + self._backoff.next_ms()
            if isinstance(event, Answered) and event.body["error_code"] == NONE:
                group_id, epoch = self._settings.group_id, event.body["member_epoch"]
                self._warning.give(now_ms, "group %s: a heartbeat is answered with member epoch %d", group_id, epoch)
            elif isinstance(event, Answered):
                self._judge(error_for_code(event.body["error_code"], event.body["error_message"]), now_ms)
            elif event.kind is LostKind.UNSUPPORTED:
                self._fail(_too_old(event.reason), final=True)
            return
        self._backoff.reset()
        self._known = fields
        interval_ms = event.body["heartbeat_interval_ms"] or FIRST_INTERVAL_MS
        self._interval_ms = min(max(interval_ms, MIN_INTERVAL_MS), MAX_INTERVAL_MS)
        self._ask_at_ms = event.sent_ms + self._interval_ms
        self.counters.count_heartbeat(now_ms - event.sent_ms, now_ms)
        self._told(event.body, now_ms)

    def _told(self, body: Message, now_ms: int) -> None:
        is_first = self._phase is Phase.JOINING
        if is_first:
            self.counters.count_join(now_ms - self._began_ms)
            self._enter(Phase.MEMBER)
        self._member_id = body["member_id"] or self._member_id
        self._epoch = body["member_epoch"]
        identity = self._nobody._replace(generation_id=self._epoch, member_id=self._member_id)
        if identity != self._identity:
            self._identity = identity
            self._commits.moved_on(identity, self._assignment)
        if self._phase is Phase.LEAVING:
            return
        if body["assignment"] is not None:
            target = read_assignment(body["assignment"])
            if target != self._target or is_first:
                self._target = target
                self._is_new_target = True
                self._began_ms = self._began_ms if is_first else now_ms
        elif is_first:
            self._is_new_target = True

    # --- what the coordinator says about us -------------------------------------------------------------------------

    def _judge(self, error: KafkaError, now_ms: int) -> None:
        if isinstance(error, NotCoordinator | CoordinatorNotAvailable):
            self._link.forget(f"{error.name} from a heartbeat", now_ms)
        elif isinstance(
            error, FencedMemberEpoch | UnknownMemberId | GroupIdNotFound
        ):  # the last: of a group that ended
            _log.warning("group %s: %s: %s", self._settings.group_id, error.name, error)
            self._forget_place()
        elif isinstance(error, InvalidRegularExpression) and not self._matches_here:
            self._matches_here = True
        elif isinstance(error, UnsupportedVersion):
            self._forget_place()
            self._fail(_too_old(error), final=True)
        elif not error.retriable:
            if not isinstance(error, TopicAuthorizationFailed):
                self._forget_place()
            self._fail(error, final=isinstance(error, FencedInstanceId))

    def _commit_told(self, error: KafkaError, identity: GroupMetadata, now_ms: int) -> None:
        """A heartbeat will tell what it means for us."""
        if identity == self._identity:
            self._ask_at_ms = min(self._ask_at_ms, now_ms)

    def _forget_place(self) -> None:
        """Without those that the user is giving up just now: that is what becomes of them anyway."""
        is_giving_up = bool(self._revoking) and self._news.being_revoked
        self._lose_partitions(self._named(self._owned - self._revoking if is_giving_up else self._owned))
        self._owned = self._target = self._revoking = NOTHING
        self._is_new_target = False
        self._epoch = JOIN_EPOCH
        self._known = None
        self._asking = None
        self._has_asked = False
        if self._phase is not Phase.OUTSIDE:
            self._enter(Phase.OUTSIDE)

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _check_user(self, now_ms: int) -> None:
        """A user who does not poll would keep partitions from being processed."""
        if not self._is_user_late(now_ms):
            return
        self._is_user_away = True
        if self._phase in (Phase.JOINING, Phase.MEMBER):
            self._blame_user()
            self._begin_leaving(now_ms)
            lost = self._named(self._owned)
            self._owned = self._revoking = NOTHING
            self._lose_partitions(lost)

    def _begin_leaving(self, now_ms: int) -> None:
        self._asking = None
        self._ask_at_ms = now_ms
        self._leave_by_ms = now_ms + min(self._settings.session_timeout_ms, self._settings.request_timeout_ms)
        self._enter(Phase.LEAVING)

    def _send_leave(self, now_ms: int) -> None:
        if self._revoking and not self._may_let_go(now_ms):
            self._send_heartbeat(now_ms)
            return
        if now_ms >= self._leave_by_ms:
            self._left()
        elif self._link.is_ready(now_ms):
            self._ask(leave_heartbeat(self._settings, self._member_id), now_ms, lambda event, now_ms: self._left())

    def _left(self) -> None:
        """Whatever the answer was: if the coordinator did not hear it, our session ends by itself."""
        self._owned = NOTHING
        self._forget_place()


def _too_old(why: object) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"the brokers do not know group.protocol=consumer ({why}): set group.protocol=classic, or use Kafka 4 or later"
    )
