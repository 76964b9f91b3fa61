"""Heartbeats of a classic member, and the session: when the coordinator must have given it up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from oncelog.client.membership.coordinator_link import CoordinatorLink
from oncelog.client.membership.membership import MAX_POLL_MS, MembershipCounters, MembershipSettings
from oncelog.client.network_events import Event, Lost
from oncelog.errors import NONE, KafkaError, error_for_code
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

Identity = tuple[str, int]
"""Member id and generation."""
Judge = Callable[[KafkaError, Identity, int], None]


class Heartbeats:
    def __init__(
        self, settings: MembershipSettings, link: CoordinatorLink, counters: MembershipCounters, judge: Judge
    ) -> None:
        self._settings = settings
        self._link = link
        self._counters = counters
        self._judge = judge
        self._is_under_way = False
        self._beat_at_ms = 0
        self._heard_ms = 0
        self._forget_at_ms = 0

    def begin(self, now_ms: int) -> None:
        """The coordinator has just heard of us in another way."""
        self._was_heard(now_ms)
        self._beat_at_ms = now_ms + self._settings.heartbeat_interval_ms

    def is_session_over(self, now_ms: int) -> bool:
        """The coordinator has not heard of us for so long that it must have given us up, if it was there."""
        return now_ms - self._heard_ms >= self._settings.session_timeout_ms

    def _was_heard(self, heard_ms: int) -> None:
        self._heard_ms = max(self._heard_ms, heard_ms)
        self._forget_at_ms = self._heard_ms + self._settings.session_timeout_ms

    def poll(self, identity: Identity, now_ms: int) -> int:
        """Sends one if it is due. Returns how long it would wait."""
        if now_ms >= self._forget_at_ms and not self._link.is_taken:
            # Whoever is silent for so long is not the one to ask. Whether the group gave us up, only it can tell.
            session_ms = self._settings.session_timeout_ms
            self._link.forget(f"no heartbeat was answered within session.timeout.ms ({session_ms})", now_ms)
            self._forget_at_ms = now_ms + session_ms
        if self._is_under_way:
            return MAX_POLL_MS
        if now_ms < self._beat_at_ms:
            return min(self._beat_at_ms - now_ms, MAX_POLL_MS)
        if not self._link.is_ready(now_ms):
            return self._link.wait_ms(now_ms)
        member_id, generation_id = identity
        body: Message = {
            "group_id": self._settings.group_id,
            "generation_id": generation_id,
            "member_id": member_id,
            "group_instance_id": self._settings.group_instance_id,
        }
        self._is_under_way = True
        self._link.send(ApiKey.HEARTBEAT, body, now_ms, partial(self._ended, identity))
        return MAX_POLL_MS

    def _ended(self, identity: Identity, event: Event, now_ms: int) -> None:
        self._is_under_way = False
        if isinstance(event, Lost):
            self._beat_at_ms = now_ms + self._settings.retry_backoff_ms
            return
        self._beat_at_ms = event.sent_ms + self._settings.heartbeat_interval_ms
        code = event.body["error_code"]
        if code == NONE:
            self._was_heard(event.sent_ms)
            self._counters.count_heartbeat(now_ms - event.sent_ms, now_ms)
            return
        error = error_for_code(code)
        if error.retriable:
            self._beat_at_ms = now_ms + self._settings.retry_backoff_ms
        self._judge(error, identity, now_ms)
