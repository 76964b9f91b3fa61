"""Members of one group with everything real but sockets and clock: cores, network, coordinator; and their users.

A user polls now and then, hears news, processes one record of each of its partitions per poll, and commits. Nothing
happens unless a method is called; whatever is random is drawn from the world's own source, so that a seed replays it.

The promises of membership are the named functions at the end; each looks at a world and raises if it is broken.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Collection
from itertools import count, pairwise
from typing import Any

from oncelog.client.cluster import Cluster
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.assignors.catalogue import assignors_named
from oncelog.client.membership.classic import ClassicMembership
from oncelog.client.membership.coordinator_link import GROUP_KEY, CoordinatorLink
from oncelog.client.membership.kip848 import Kip848Membership
from oncelog.client.membership.membership import Membership, MembershipSettings
from oncelog.client.membership.news import Assigned, Failed, Lost, News, Revoking
from oncelog.client.membership.offset_commits import OffsetCommits
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Close, Connect, Event, Write
from oncelog.client.network_settings import NetworkSettings
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.client.membership.model_coordinator import FIRST_PORT, GROUP, Line, ModelCoordinator

LATENCY_MS = 5
USER_PERIOD_MS = 50
SETTINGS: dict[str, Any] = {
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": 5_000,
    "request_timeout_ms": 1_000,
    "default_api_timeout_ms": 4_000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
NETWORK = NetworkSettings(
    client_id="test",
    max_in_flight=100,
    request_timeout_ms=1_000,
    socket_connection_setup_timeout_ms=500,
    socket_connection_setup_timeout_max_ms=1_000,
    reconnect_backoff_ms=10,
    reconnect_backoff_max_ms=100,
    connections_max_idle_ms=-1,
    max_answer_bytes=1 << 24,
)


class Reader:
    """One consumer: its cores, and the user who holds it."""

    def __init__(self, world: World, name: str, protocol: str, strategy: Collection[Any], **settings: Any) -> None:
        self.world = world
        self.name = name
        self.network = Network(NETWORK, world.chance.random)
        self.metadata = MetadataCache(max_age_ms=500, max_idle_ms=60_000, retry_backoff_ms=20)
        self.cluster = Cluster(self.network, self.metadata, [("h", FIRST_PORT + 1), ("h", FIRST_PORT + 2)])
        chosen = MembershipSettings(group_id=GROUP, assignors=assignors_named(strategy), **{**SETTINGS, **settings})
        self.link = CoordinatorLink(GROUP_KEY, chosen.group_id, self.network, chosen.new_backoff(world.chance.random))
        self.commits = OffsetCommits(chosen, self.link, self.metadata, world.chance.random)
        parts = (chosen, self.link, self.commits, self.metadata, world.chance.random)
        self.member: Membership
        if protocol == "classic":
            self.member = ClassicMembership(*parts)
        else:
            self.member = Kip848Membership(*parts, new_id=lambda: f"uuid-{name}")
        self.lines: dict[int, Line] = {}
        self.owned: frozenset[TopicPartition] = frozenset()
        """What the user thinks is its own."""
        self.positions: dict[TopicPartition, int | None] = {}
        self.news: list[News] = []
        self.commit_results: list[Exception | None] = []
        self.is_alive = True
        self.is_leaving = False
        self.frozen_until_ms = 0
        self.is_polling = True
        self._awaits_commit = False
        self._woken_ms = -1

    def __repr__(self) -> str:
        return f"{self.name} {self.member.identity} {sorted(self.owned)}"

    # --- the driver ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        now_ms = self.world.now_ms
        if not self.is_alive or now_ms < self.frozen_until_ms:
            return
        for event in self.network.tick(now_ms):
            self.dispatch(event)
        self.cluster.refresh(now_ms)
        wait_ms = min(self.member.poll(now_ms), self.commits.poll(now_ms))
        self.cluster.refresh(now_ms)
        self._perform()
        deadline_ms = self.network.next_deadline_ms(now_ms)
        if deadline_ms is not None:
            wait_ms = min(wait_ms, deadline_ms - now_ms)
        due_ms = self.metadata.due_ms()
        if due_ms is not None:
            wait_ms = min(wait_ms, due_ms - now_ms)
        self._wake_in(max(1, wait_ms))

    def _wake_in(self, wait_ms: int) -> None:
        at_ms = self.world.now_ms + wait_ms
        if self._woken_ms <= self.world.now_ms or at_ms < self._woken_ms:
            self._woken_ms = at_ms
            self.world.at(at_ms, self.run)

    def dispatch(self, event: Event) -> None:
        if event.tag == ApiKey.METADATA:
            self.cluster.arrived(event, self.world.now_ms)
        else:
            assert self.link.handle(event, self.world.now_ms)

    def _perform(self) -> None:
        for effect in self.network.take_effects():
            if isinstance(effect, Connect):
                line = self.world.brokers.connect(effect.port)
                self.lines[effect.link] = line
                self.world.soon(lambda link=effect.link: self._opened(link))
            elif isinstance(effect, Write):
                data = b"".join(effect.buffers)
                self.world.soon(lambda link=effect.link, data=data: self._arrive(link, data))
            else:
                assert isinstance(effect, Close)
                self._hang_up(self.lines.pop(effect.link, None))

    def _hang_up(self, line: Line | None) -> None:
        if line is not None and line.is_open:
            self.world.brokers.hang_up(line)

    def _opened(self, link: int) -> None:
        if link in self.lines:
            self.network.opened(link, self.world.now_ms)
            self.run()

    def _arrive(self, link: int, data: bytes) -> None:
        line = self.lines.get(link)
        if line is not None and line.is_open:
            line.write(data)
            self.world.brokers.serve(line, self.world.now_ms)

    def receive(self) -> None:
        """Answers that the brokers gave meanwhile, and connections that they closed."""
        for link, line in list(self.lines.items()):
            answers, line.answers = line.answers, []
            for data in answers:
                self.world.soon(lambda link=link, data=data: self._answered(link, data))
            if not line.is_open:
                self.world.soon(lambda link=link: self._lost(link))

    def _answered(self, link: int, data: bytes) -> None:
        if link not in self.lines or not self.is_alive:
            return
        if self.world.now_ms < self.frozen_until_ms:
            self.world.at(self.frozen_until_ms, lambda: self._answered(link, data))
            return
        rest = memoryview(data)
        while rest:
            buffer = self.network.get_buffer(link)
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            for event in self.network.received(link, size, self.world.now_ms):
                self.dispatch(event)
        if link in self.lines:
            self.world.brokers.serve(self.lines[link], self.world.now_ms)
        self.run()

    def _lost(self, link: int) -> None:
        if self.lines.pop(link, None) is None:
            return
        for event in self.network.lost(link, "reset", self.world.now_ms):
            self.dispatch(event)
        self.run()

    def cut(self) -> None:
        """All its connections break; what was not worked on is lost, as are answers on their way."""
        for link, line in list(self.lines.items()):
            self._hang_up(line)
            self._lost(link)

    def die(self) -> None:
        self.is_alive = False
        for line in self.lines.values():
            self._hang_up(line)
        self.lines.clear()

    @property
    def processing(self) -> frozenset[TopicPartition]:
        """What the user works on, as long as nothing of it was lost: of that it will hear."""
        box = self.member._news  # type: ignore[attr-defined]
        is_lost = any(isinstance(one, Lost) for one in (*box._untold, *box._told))
        return frozenset() if is_lost else self.owned

    # --- the user ------------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str | re.Pattern[str]) -> None:
        first = topics[0]
        self.member.subscribe(first if isinstance(first, re.Pattern) else [str(one) for one in topics])

    def user_step(self) -> None:
        """One poll of the user; at least one is always to come while it lives."""
        if not self.is_alive:
            return
        if self.is_polling and self.world.now_ms >= self.frozen_until_ms and not self._awaits_commit:
            self.member.user_polled(self.world.now_ms)
            self._hear()
            self._process()
            self.run()
        self.world.at(self.world.now_ms + USER_PERIOD_MS, self.user_step)

    def _hear(self) -> None:
        news = self.member.take_news()
        if not news:
            return
        self.news += news
        for one in news:
            if isinstance(one, Revoking):
                self._commit(one.partitions, retry=True, wait=True)
            else:
                self._told(one)
        if not self._awaits_commit:
            self._finish(news)

    def _finish(self, news: list[News]) -> None:
        for one in news:
            if isinstance(one, Revoking):
                self._told(one)
        self.member.news_done(self.world.now_ms)

    def _told(self, one: News) -> None:
        if isinstance(one, Assigned):
            self.owned = one.partitions
            for partition in one.added:
                self.positions[partition] = None
            if one.added:
                self.commits.fetch(one.added, self.world.now_ms, self._positioned)
        elif isinstance(one, Revoking | Lost):
            self.owned -= one.partitions
        elif isinstance(one, Failed):
            self.world.failures.append(one.error)

    def _positioned(self, found: Any) -> None:
        if isinstance(found, Exception):
            unknown = [one for one in self.owned if self.positions.get(one) is None]
            self.commits.fetch(unknown, self.world.now_ms, self._positioned)
            return
        for partition, committed in found.items():
            if partition in self.owned and self.positions.get(partition) is None:
                self.positions[partition] = 0 if committed is None else committed.offset

    def _process(self) -> None:
        for partition in self.owned:
            position = self.positions.get(partition)
            if position is not None:
                self.positions[partition] = position + 1
        if self.world.chance.random() < 0.3:
            self._commit(self.owned, retry=self.world.chance.random() < 0.5)

    def _commit(self, partitions: Collection[TopicPartition], *, retry: bool, wait: bool = False) -> None:
        offsets = {
            one: OffsetAndMetadata(position) for one in partitions if (position := self.positions.get(one)) is not None
        }
        told = list(self.news[-1:])

        def done(error: Exception | None) -> None:
            self.commit_results.append(error)
            if wait:
                self._awaits_commit = False
                self._finish(told)

        if offsets:
            self._awaits_commit |= wait
            self.commits.commit(offsets, self.member.identity, self.world.now_ms, done, retry=retry)


class World:
    def __init__(self, topics: dict[str, int], *, seed: int = 0, **brokers: Any) -> None:
        self.now_ms = 1_000_000
        self.chance = random.Random(seed)
        self.brokers = ModelCoordinator(topics, **brokers)
        self.readers: list[Reader] = []
        self.failures: list[Exception] = []
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, at_ms: int, call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (max(at_ms, self.now_ms), next(self._numbers), call))

    def soon(self, call: Callable[[], object]) -> None:
        self.at(self.now_ms + LATENCY_MS, call)

    def add(
        self,
        *topics: str | re.Pattern[str],
        protocol: str = "classic",
        strategy: Collection[Any] = ("range", "cooperative-sticky"),
        **settings: Any,
    ) -> Reader:
        reader = Reader(self, f"r{len(self.readers)}", protocol, strategy, **settings)
        self.readers.append(reader)
        reader.subscribe(*topics)
        self.at(self.now_ms, reader.user_step)
        return reader

    @property
    def alive(self) -> list[Reader]:
        return [reader for reader in self.readers if reader.is_alive]

    def pass_time(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while True:
            self._exchange()
            deadline_ms = self.brokers.next_deadline_ms()
            next_ms = self._events[0][0] if self._events else end_ms + 1
            if deadline_ms is not None and deadline_ms < next_ms:
                next_ms = max(deadline_ms, self.now_ms)
            if next_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = next_ms
            self.brokers.tick(self.now_ms)
            if self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
            partitions_have_one_owner(self)

    def _exchange(self) -> None:
        for reader in self.readers:
            if reader.is_alive:
                reader.receive()

    def until(self, condition: Callable[[], bool], limit_ms: int = 60_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < end_ms, f"not within {limit_ms} ms: {self.alive}"
            self.pass_time(20)

    def settle(self) -> None:
        """Until all are members, and nothing moves any more for a while."""
        self.until(self.is_settled)
        self.pass_time(1_000)
        self.until(self.is_settled)

    def is_settled(self) -> bool:
        return all(reader.member.is_joined and reader.member.assignment == reader.owned for reader in self.alive)


# --- promises ------------------------------------------------------------------------------------------------


def partitions_have_one_owner(world: World) -> None:
    """Among those whom the coordinator counts as members: no partition is another's before its owner let it go."""
    members = world.brokers.members()
    owners: dict[TopicPartition, Reader] = {}
    for reader in world.alive:
        if reader.member.identity.member_id in members:
            for partition in reader.member.assignment | reader.processing:
                assert partition not in owners, f"{partition}: {owners[partition]} and {reader}"
                owners[partition] = reader


def every_partition_is_read(world: World, *topics: str) -> None:
    read = [partition for reader in world.alive for partition in reader.owned]
    assert sorted(read) == sorted(world.brokers.topics.partitions(topics)), world.alive


def offsets_never_go_back(world: World) -> None:
    by_partition: dict[TopicPartition, list[int]] = {}
    for partition, offset in world.brokers.commits:
        by_partition.setdefault(partition, []).append(offset)
    for partition, offsets in by_partition.items():
        for before, after in pairwise(offsets):
            assert before <= after, f"{partition}: {after} was committed after {before}"
