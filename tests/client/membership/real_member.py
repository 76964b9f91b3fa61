"""A member of a group on real sockets, in a thread of its own, with a user who agrees to everything at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection
from typing import Any
from uuid import uuid4

from oncelog.client.cluster import Cluster
from oncelog.client.membership.assignors.catalogue import assignors_named
from oncelog.client.membership.classic import ClassicMembership
from oncelog.client.membership.coordinator_link import GROUP_KEY, CoordinatorLink
from oncelog.client.membership.kip848 import Kip848Membership
from oncelog.client.membership.membership import Membership, MembershipSettings
from oncelog.client.membership.news import Assigned, Failed, Lost, News, Revoking
from oncelog.client.membership.offset_commits import OffsetCommits
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Event
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.selecting import SelectingDriver
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.support.patience import eventually

USER_PERIOD_MS = 20
NETWORK = NetworkSettings(
    client_id="oncelog-member",
    max_in_flight=100,
    request_timeout_ms=30_000,
    socket_connection_setup_timeout_ms=10_000,
    socket_connection_setup_timeout_max_ms=30_000,
    reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=1_000,
    connections_max_idle_ms=-1,
    max_answer_bytes=1 << 27,
)


class RealMember:
    def __init__(
        self,
        address: tuple[str, int],
        group_id: str,
        topics: Collection[str],
        *,
        protocol: str = "classic",
        strategy: Collection[str] = ("range",),
    ) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.news: list[News] = []
        self.error: BaseException | None = None
        self.network = Network(NETWORK, random.random)
        self._metadata = MetadataCache(max_age_ms=1_000, max_idle_ms=300_000, retry_backoff_ms=50)
        self._cluster = Cluster(self.network, self._metadata, [address])
        settings = MembershipSettings(
            group_id=group_id,
            heartbeat_interval_ms=200,
            session_timeout_ms=30_000,
            assignors=assignors_named(strategy),
        )
        self._link = CoordinatorLink(GROUP_KEY, settings.group_id, self.network, settings.new_backoff(random.random))
        self.commits = OffsetCommits(settings, self._link, self._metadata, random.random)
        parts: tuple[Any, ...] = (settings, self._link, self.commits, self._metadata, random.random)
        self.member: Membership
        if protocol == "classic":
            self.member = ClassicMembership(*parts)
        else:
            self.member = Kip848Membership(*parts, new_id=lambda: str(uuid4()))
        self.member.subscribe(topics)
        self._is_closing = self._is_leaving = False
        self.is_finished = False
        self._driver = SelectingDriver(self)
        self._thread = threading.Thread(target=self._driver.run, daemon=True)
        self._thread.start()

    def __enter__(self) -> RealMember:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._driver.wake()
        self._thread.join(60)
        self._driver.close()
        assert self.error is None, self.error

    def owns(self, count: int) -> bool:
        assert self.error is None, self.error
        return len(self.owned) == count and self.member.is_joined

    def until_it_owns(self, count: int) -> None:
        eventually(lambda: self.owns(count), f"{count} partitions, not {self.owned}")

    # --- for the driver -------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> int:
        if self._is_closing and not self._is_leaving:
            self._is_leaving = True
            self.member.leave(now_ms, "the test ends")
        self.member.user_polled(now_ms)
        self.member.poll(now_ms)
        self._hear(now_ms)
        self.member.poll(now_ms)
        self.commits.poll(now_ms)
        self._cluster.refresh(now_ms)
        self.is_finished = self._is_leaving and self.member.is_gone
        return USER_PERIOD_MS

    def _hear(self, now_ms: int) -> None:
        news = self.member.take_news()
        self.news += news
        for one in news:
            if isinstance(one, Assigned):
                self.owned = one.partitions
            elif isinstance(one, Revoking | Lost):
                self.owned -= one.partitions
            else:
                assert isinstance(one, Failed)
                self.error = one.error
        if news:
            self.member.news_done(now_ms)

    def handle(self, event: Event, now_ms: int) -> None:
        if event.tag == ApiKey.METADATA:
            self._cluster.arrived(event, now_ms)
        else:
            assert self._link.handle(event, now_ms)

    def failed(self, error: BaseException) -> None:
        self.error = error
        self.is_finished = True
