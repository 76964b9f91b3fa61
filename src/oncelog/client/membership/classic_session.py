"""What a classic member and its coordinator say to each other: who we are there, one request at a time, heartbeats.

Owns the member id and the generation as the coordinator knows them, and when it may be asked again. An answer to what
was asked before we turned to something else is not heard. Decides nothing: an answer that brings us further goes to
whoever asked, a setback to the member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from oncelog.client.consumer_records import NO_GENERATION, NO_MEMBER
from oncelog.client.membership.backoff import Backoff
from oncelog.client.membership.classic_requests import join_request, leave_request, sync_request
from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.heartbeats import Heartbeats, Identity, Judge
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipCounters, MembershipSettings
from oncelog.client.network_events import Answered, Event, Lost
from oncelog.errors import NONE, KafkaError, MemberIdRequired, UnsupportedVersion, error_for_code
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

JOIN_GRACE_MS = 5_000
"""A JoinGroup is answered when all members have come, or after the rebalance timeout; so much later it is lost."""
FIRST_VERSION_OF_INSTANCES = 5
HASTY_JOINS = 5
"""So many setbacks in a row are followed by another attempt at once, as a rebalance needs it; the next ones by a pause,
until a generation comes about."""


class Refused(NamedTuple):
    """The coordinator has something against it."""

    error: KafkaError
    api_key: ApiKey


Setback = Refused | Lost
Heard = Callable[[Message, int], None]
"""Takes the body of a good answer, and when it came."""


class ClassicSession:
    def __init__(
        self,
        settings: MembershipSettings,
        link: CoordinatorLink,
        counters: MembershipCounters,
        backoff: Backoff,
        set_back: Callable[[Setback, int], None],
        judge_heartbeat: Judge,
    ) -> None:
        """`set_back` hears of each JoinGroup and SyncGroup that did not bring us in."""
        self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self._settings = settings
        self._link = link
        self._counters = counters
        self._backoff = backoff
        self._set_back = set_back
        self._heartbeats = Heartbeats(settings, link, counters, judge_heartbeat)
        self._asking: object = None  # stands for the request under way
        self._ask_at_ms = 0
        self._setbacks = 0

    @property
    def identity(self) -> Identity:
        return self.member_id, self.generation_id

    def forget_place(self, *, keep_member_id: bool) -> None:
        """The group goes on without us."""
        self.generation_id = NO_GENERATION
        self._asking = None
        if not keep_member_id:
            self.member_id = NO_MEMBER

    # --- one request at a time --------------------------------------------------------------------------------------

    def may_ask(self, now_ms: int) -> bool:
        return self._asking is None and now_ms >= self._ask_at_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until something can be asked, as far as that is known."""
        if self._asking is not None:
            return MAX_POLL_MS
        return self._ask_at_ms - now_ms if now_ms < self._ask_at_ms else self._link.wait_ms(now_ms)

    def pause(self, now_ms: int) -> None:
        """Ask again after a while."""
        self._ask_at_ms = now_ms + self._backoff.next_ms()

    def pause_if_again(self, now_ms: int) -> None:
        """After what asks us to join anew at once: obeyed, but not time and again without a pause."""
        self._setbacks += 1
        if self._setbacks > HASTY_JOINS:
            self.pause(now_ms)

    def turn_away(self, now_ms: int) -> None:
        """What was asked is of no interest any more; the next request may go at once."""
        self._asking = None
        self._ask_at_ms = now_ms

    def _ask(
        self,
        api_key: ApiKey,
        body: Message,
        now_ms: int,
        ended: Callable[[Event, int], None],
        *,
        timeout_ms: int | None = None,
        held_ms: int = 0,
    ) -> None:
        """While it is under way nothing else is sent: the coordinator may answer late, and nothing behind it sooner."""
        asking = self._asking = object()
        done = partial(self._ended, asking, ended)
        self._link.send(api_key, body, now_ms, done, exclusive=True, timeout_ms=timeout_ms, held_ms=held_ms)

    def _ended(self, asking: object, ended: Callable[[Event, int], None], event: Event, now_ms: int) -> None:
        if self._asking is asking:  # otherwise we have turned to something else meanwhile
            self._asking = None
            ended(event, now_ms)

    # --- the requests -----------------------------------------------------------------------------------------------

    def objection(self) -> UnsupportedVersion | None:
        """Why the coordinator would not understand us: it must know what an instance id is, if we have one."""
        if self._settings.group_instance_id is None:
            return None
        try:
            version = self._link.version_of(ApiKey.JOIN_GROUP)
        except UnsupportedVersion as too_old:
            return too_old
        if version >= FIRST_VERSION_OF_INSTANCES:
            return None
        return UnsupportedVersion("the coordinator is too old for group.instance.id (JoinGroup version 5)")

    def join(self, subscriptions: Mapping[str, bytes], reason: str | None, now_ms: int, joined: Heard) -> None:
        """`subscriptions` by the names of the assignors."""
        body = join_request(self._settings, self.member_id, subscriptions, reason)
        timeout_ms = max(self._settings.request_timeout_ms, self._settings.max_poll_interval_ms + JOIN_GRACE_MS)
        self._ask(
            ApiKey.JOIN_GROUP,
            body,
            now_ms,
            partial(self._join_ended, joined),
            timeout_ms=timeout_ms,
            held_ms=timeout_ms,
        )

    def _join_ended(self, joined: Heard, event: Event, now_ms: int) -> None:
        if isinstance(event, Answered) and event.body["error_code"] == MemberIdRequired.code and not self.member_id:
            self.member_id = event.body["member_id"]  # to join with at once
            if self.member_id:
                return
        answer = self._good_answer(event, now_ms)
        if answer is not None:
            self._counters.count_join(now_ms - answer.sent_ms)
            self._backoff.reset()
            self.member_id = answer.body["member_id"]
            self.generation_id = answer.body["generation_id"]
            joined(answer.body, now_ms)

    def sync(self, protocol_name: str, assignments: Mapping[str, bytes], now_ms: int, assigned: Heard) -> None:
        """`assignments` by member, from the leader only."""
        body = sync_request(self._settings, self.member_id, self.generation_id, protocol_name, assignments)
        held_ms = self._settings.request_timeout_ms  # until the leader of the group has shared the partitions
        self._ask(ApiKey.SYNC_GROUP, body, now_ms, partial(self._sync_ended, assigned), held_ms=held_ms)

    def _sync_ended(self, assigned: Heard, event: Event, now_ms: int) -> None:
        answer = self._good_answer(event, now_ms)
        if answer is not None:
            self._counters.count_sync(now_ms - answer.sent_ms)
            self._setbacks = 0
            assigned(answer.body, now_ms)

    def _good_answer(self, event: Event, now_ms: int) -> Answered | None:
        if isinstance(event, Lost):
            self._set_back(event, now_ms)
            return None
        code = event.body["error_code"]
        if code != NONE:
            self._set_back(Refused(error_for_code(code), event.api_key), now_ms)
            return None
        self._heartbeats.begin(now_ms)
        return event

    def leave(self, reason: str, now_ms: int, left: Callable[[], None]) -> None:
        """Whatever the answer is: if it was not heard, the session ends by itself."""
        body = leave_request(self._settings, self.member_id, reason)
        self._ask(ApiKey.LEAVE_GROUP, body, now_ms, lambda event, now_ms: left())

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def beat(self, now_ms: int) -> int:
        """A heartbeat, if one is due and there is a generation to be alive in. Returns how long until the next."""
        if self.generation_id == NO_GENERATION:
            return MAX_POLL_MS
        return self._heartbeats.poll(self.identity, now_ms)

    def is_over(self, now_ms: int) -> bool:
        """The coordinator must have given us up, if it was there."""
        return self._heartbeats.is_session_over(now_ms)
