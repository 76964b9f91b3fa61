"""A member of a classic group: its phases, its partitions, and what each answer of the coordinator means for them.

What is said to the coordinator is `ClassicSession`, how a generation comes about `ClassicRound`; here it is decided.
The life of a member is the table `TRANSITIONS`. Eager members give up everything before they join; cooperative ones
keep what they have, give up what the new assignment takes from them, and join again. Whatever the user must do first is
news, and the member waits in that phase, with heartbeats, until it is done.

An answer that says that we are no member any more is believed at once: partitions are lost, offset commits of them
fail, and the member joins as a new one. A coordinator that does not answer is searched again, and nothing is lost until
one says so: the group's generation, which every offset commit carries, keeps a member that it forgot from doing harm.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection

from oncelog.client.membership.assignor import COOPERATIVE
from oncelog.client.membership.classic_phase import BEATING, SEATED, TRANSITIONS, Phase
from oncelog.client.membership.classic_round import ClassicRound
from oncelog.client.membership.classic_session import ClassicSession, Setback
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.heartbeats import Identity
from oncelog.client.membership.member import Member
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipSettings
from oncelog.client.membership.news import Assigned, Revoking
from oncelog.client.membership.offset_commits import OffsetCommits
from oncelog.client.membership.standing import Standing, standing_of
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network_events import Lost, LostKind
from oncelog.errors import InconsistentGroupProtocol, KafkaError, UnsupportedVersion
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

_log = logging.getLogger(__name__)


class ClassicMembership(Member):
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        commits: OffsetCommits,
        metadata: MetadataCache,
        jitter: Callable[[], float],
    ) -> None:
        super().__init__(settings, link, commits, metadata, jitter)
        assert settings.assignors, "a classic member needs an assignor"
        commits.tell_member = self._commit_told
        self._is_cooperative = all(COOPERATIVE in assignor.protocols for assignor in settings.assignors)
        self._session = ClassicSession(
            settings, link, self.counters, self._backoff, self._set_back, self._heartbeat_told
        )
        self._round = ClassicRound(settings, metadata)
        self._phase = Phase.OUTSIDE
        self._rejoin_reason: str | None = None
        self._seen_cluster: object = None
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._next_assignment: frozenset[TopicPartition] = frozenset()
        self._began_ms = 0
        self._leave_reason = ""
        self._leave_by_ms = 0

    # --- for the consumer -------------------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        return self._phase is Phase.STABLE and self._rejoin_reason is None

    @property
    def is_gone(self) -> bool:
        return self._phase is Phase.OUTSIDE

    def subscribe(self, topics: Collection[str] | re.Pattern[str]) -> None:
        super().subscribe(topics)
        self._seen_cluster = None

    def ask_rebalance(self, reason: str) -> None:
        self._rejoin_reason = self._rejoin_reason or reason

    def leave(self, now_ms: int, reason: str) -> None:
        self._unsubscribe()
        if self._phase is not Phase.LEAVING and (self._phase is not Phase.OUTSIDE or self._session.member_id):
            self._begin_leaving(reason, now_ms)
            self._revoke(self._assignment)

    def poll(self, now_ms: int) -> int:
        self._check_user(now_ms)
        refusal = self._take_refusal()
        if refusal is not None and self._phase not in (Phase.OUTSIDE, Phase.LEAVING):
            self._fail(refusal)
        if self._choice is not None:
            self._want_topics(self._group_topics, now_ms)
        while self._step(now_ms):
            pass
        wait_ms = self._wait_ms(now_ms)
        if self._phase in BEATING:
            wait_ms = min(wait_ms, self._session.beat(now_ms))
        return wait_ms

    def _wait_ms(self, now_ms: int) -> int:
        waits_ms = [MAX_POLL_MS, self._user_late_ms(now_ms)]
        if self._phase in _ASK:
            waits_ms.append(self._session.wait_ms(now_ms))
        if self._revoking and self._news.is_clear:
            waits_ms.append(self._give_up_at_ms - now_ms)
        return max(0, min(waits_ms))

    # --- phases -----------------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{self._phase} -> {phase}"
        self._phase = phase

    def _step(self, now_ms: int) -> bool:
        """One step forward, if one is possible."""
        phase = self._phase
        if phase in _ASK:
            if self._session.may_ask(now_ms):
                _ASK[phase](self, now_ms)
        else:
            _GO_ON[phase](self, now_ms)
        return self._phase is not phase

    def _begin_joining(self, now_ms: int) -> None:
        if self._may_join and self._topics is not None:
            self._began_ms = now_ms
            self._enter(Phase.JOINING)

    def _begin_rejoining(self, now_ms: int) -> None:
        self._notice_topics()
        topics = self._topics
        if self._rejoin_reason is None or not self._may_join or topics is None:
            return
        self._began_ms = now_ms
        self._enter(Phase.REVOKING)
        wanted = topics if self._is_cooperative else frozenset()
        self._revoke(frozenset(one for one in self._assignment if one.topic not in wanted))

    def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self._revoking = partitions
        if partitions:
            self._news.put(Revoking(partitions))

    def _has_let_go(self, now_ms: int) -> bool:
        return not self._revoking or self._may_let_go(now_ms)

    def _let_go(self, now_ms: int) -> None:
        if self._has_let_go(now_ms):
            self._assignment -= self._revoking
            self._revoking = frozenset()
            self._enter(Phase.JOINING)

    def _assign(self, now_ms: int) -> None:
        if not self._round.knows_topics:
            return
        try:
            self._round.assign()
        except Exception as error:  # of an assignor that the user wrote
            self._fail_joining(error)
        else:
            self._enter(Phase.SYNCING)

    def _settle(self, now_ms: int) -> None:
        if not self._has_let_go(now_ms):
            return
        if self._revoking:
            self.ask_rebalance("partitions were given up that others are to get")
        self._revoking = frozenset()
        added = self._next_assignment - self._assignment
        self._assignment = self._next_assignment
        self._news.put(Assigned(self._assignment, added))
        self._seen_cluster = None
        self.counters.count_rebalance(now_ms - self._began_ms, now_ms)
        self._enter(Phase.STABLE)

    # --- topics -----------------------------------------------------------------------------------------------------

    def _group_topics(self) -> frozenset[str]:
        return (self._topics or frozenset()) | self._round.group_topics

    def _notice_topics(self) -> None:
        """Rejoin where the topics are not those any more that the group joined for."""
        if self._metadata.cluster is self._seen_cluster:
            return
        self._seen_cluster = self._metadata.cluster
        reason = self._round.why_again(self._topics)
        if reason is not None:
            self.ask_rebalance(reason)

    # --- joining ----------------------------------------------------------------------------------------------------

    def _send_join(self, now_ms: int) -> None:
        if self._is_failed or not self._link.is_ready(now_ms):
            return
        objection = self._session.objection()
        if objection is not None:
            self._fail(objection, final=True)
            return
        if self._assignment and self._session.is_over(now_ms):
            # What we own may be others' by now, and not every coordinator would notice when we claim it.
            _log.warning("group %s: silent for longer than session.timeout.ms", self._settings.group_id)
            self._forget_place(keep_member_id=True)
        self._commits.hold(self._assignment)
        reason, self._rejoin_reason = self._rejoin_reason, None
        topics = self._topics or frozenset()
        offers = self._round.begin(topics, self._assignment, self._identity.generation_id)
        self._session.join(offers, reason, now_ms, self._joined)

    def _joined(self, body: Message, now_ms: int) -> None:
        try:
            is_to_assign = self._round.joined(body)
        except InconsistentGroupProtocol as error:
            self._fail_joining(error)
            return
        if self._round.is_led:
            self._want_at_ms = now_ms  # metadata of what all the members want
        self._enter(Phase.ASSIGNING if is_to_assign else Phase.SYNCING)

    def _send_sync(self, now_ms: int) -> None:
        if self._link.is_ready(now_ms):
            self._session.sync(self._round.protocol_name, self._round.assignments, now_ms, self._synced)

    def _synced(self, body: Message, now_ms: int) -> None:
        """What the leader gave us of topics that we do not want any more is given back at once, by joining again."""
        try:
            assigned = self._round.assigned(body, self._session.generation_id)
        except InconsistentGroupProtocol as error:
            self._fail_joining(error)
            return
        member_id, generation_id = self._session.identity
        self._identity = self._nobody._replace(generation_id=generation_id, member_id=member_id)
        self._commits.moved_on(self._identity, self._assignment)
        wanted = self._round.topics if self._topics is None else self._topics
        self._next_assignment = frozenset(one for one in assigned if one.topic in wanted)
        self._enter(Phase.SETTLING)
        self._revoke(self._assignment - self._next_assignment)

    # --- what the coordinator says about us -------------------------------------------------------------------------

    def _set_back(self, setback: Setback, now_ms: int) -> None:
        """A JoinGroup or a SyncGroup did not bring us in."""
        if self._phase is Phase.SYNCING:
            self._enter(Phase.JOINING)
        if isinstance(setback, Lost):  # the same member joins again, when there is a coordinator
            if setback.kind is LostKind.UNSUPPORTED:
                self._fail(UnsupportedVersion(setback.reason), final=True)
            return
        error, api_key = setback
        self.counters.failed_rebalances += 1
        standing = standing_of(error)
        if standing is Standing.REFUSED:
            self._fail(error)
            self._session.pause(now_ms)
        elif standing is Standing.MOVED:
            self._link.forget(f"{error.name} from {api_key.name}", now_ms)
        elif standing in (Standing.OUTDATED, Standing.EXPELLED, Standing.FENCED):
            self._expel(standing, error)
            self._session.pause_if_again(now_ms)
        if standing is Standing.UNCHANGED or (standing is Standing.REBALANCING and api_key is ApiKey.JOIN_GROUP):
            self._session.pause(now_ms)
        elif standing is Standing.REBALANCING:
            self._session.pause_if_again(now_ms)

    def _heartbeat_told(self, error: KafkaError, identity: Identity, now_ms: int) -> None:
        if identity == self._session.identity and self._phase in BEATING:
            self._judge_standing(error, "HEARTBEAT", now_ms)

    def _commit_told(self, error: KafkaError, identity: object, now_ms: int) -> None:
        if identity == self._identity and self._phase in SEATED:
            self._judge_standing(error, "OFFSET_COMMIT", now_ms)

    def _judge_standing(self, error: KafkaError, where: str, now_ms: int) -> None:
        standing = standing_of(error)
        if standing is Standing.MOVED:
            self._link.forget(f"{error.name} from {where}", now_ms)
        elif standing is Standing.REBALANCING:
            if self._phase in (Phase.STABLE, Phase.SETTLING):
                self.ask_rebalance("the group rebalances")
        elif standing in (Standing.OUTDATED, Standing.EXPELLED, Standing.FENCED):
            self._expel(standing, error)
        elif standing is Standing.REFUSED:
            self._fail(error)

    def _expel(self, standing: Standing, error: KafkaError) -> None:
        """The group went on without us."""
        _log.warning("group %s: %s: %s", self._settings.group_id, error.name, error)
        self._forget_place(keep_member_id=standing is Standing.OUTDATED)
        self._enter(Phase.OUTSIDE)
        if standing is Standing.FENCED:
            self._fail(error, final=True)

    def _forget_place(self, *, keep_member_id: bool = False) -> None:
        """Without those that the user is giving up just now: that is what becomes of them anyway."""
        is_giving_up = self._revoking and self._news.being_revoked
        self._lose_partitions(self._assignment - self._revoking if is_giving_up else self._assignment)
        self._revoking = frozenset()
        self._round.forget()
        self._session.forget_place(keep_member_id=keep_member_id)

    def _fail_joining(self, error: Exception) -> None:
        """Joined again with the next poll of the user, if that helps."""
        self.counters.failed_rebalances += 1
        if self._phase is not Phase.JOINING:
            self._enter(Phase.JOINING)
        self._fail(error)

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _check_user(self, now_ms: int) -> None:
        """A user who does not poll would keep partitions from being processed."""
        if not self._is_user_late(now_ms) or self._link.is_taken:
            return
        self._is_user_away = True
        if self._phase in (Phase.OUTSIDE, Phase.LEAVING):
            return
        self._blame_user()
        self._forget_place(keep_member_id=True)
        self._begin_leaving("max.poll.interval.ms passed without a poll", now_ms)

    def _begin_leaving(self, reason: str, now_ms: int) -> None:
        if self._link.is_taken:
            self._link.forget("the member leaves while it is joining", now_ms)
        self._commits.let_out()
        self._session.turn_away(now_ms)
        self._rejoin_reason = None
        self._leave_reason = reason
        self._leave_by_ms = now_ms + min(self._settings.session_timeout_ms, self._settings.request_timeout_ms)
        self._enter(Phase.LEAVING)

    def _send_leave(self, now_ms: int) -> None:
        if not self._has_let_go(now_ms):
            return
        is_silent = not self._session.member_id or self._settings.group_instance_id is not None
        if is_silent or now_ms >= self._leave_by_ms:
            self._left()
        elif self._link.is_ready(now_ms):
            self._session.leave(self._leave_reason, now_ms, self._left)

    def _left(self) -> None:
        self._assignment = frozenset()
        self._forget_place()
        self._enter(Phase.OUTSIDE)


_GO_ON: dict[Phase, Callable[[ClassicMembership, int], None]] = {
    Phase.OUTSIDE: ClassicMembership._begin_joining,
    Phase.REVOKING: ClassicMembership._let_go,
    Phase.ASSIGNING: ClassicMembership._assign,
    Phase.SETTLING: ClassicMembership._settle,
    Phase.STABLE: ClassicMembership._begin_rejoining,
}
_ASK: dict[Phase, Callable[[ClassicMembership, int], None]] = {
    Phase.JOINING: ClassicMembership._send_join,
    Phase.SYNCING: ClassicMembership._send_sync,
    Phase.LEAVING: ClassicMembership._send_leave,
}
