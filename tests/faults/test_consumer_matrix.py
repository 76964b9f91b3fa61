"""A group's promises, fault by fault, with both protocols, on both brokers.

Every API that a member uses is hit: whatever is lost, late, doubled, cut in two or never answered, every record is
handed out, in order, to who owns its partition, and no offset is committed that was not handed out before. And without
any fault nothing is handed out twice, however often the group rebalances. Every cell draws from the seed that a failure
shows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.client.consumer_errors import CommitFailed, ConsumerTimedOut
from oncelog.consumer.consumer import Consumer
from oncelog.faults import FaultProxy, Rule
from oncelog.types import TopicPartition
from tests.consumer.scene import PROTOCOLS, create, numbered, write
from tests.faults.group_books import Books
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.sizes import on_both_brokers_at_full_size

PARTITIONS = 4
BATCHES_PER_PHASE = 6
BATCH = 5
REBALANCES = 6

SHARED = ("Fetch", "ListOffsets", "Metadata", "FindCoordinator", "OffsetFetch", "OffsetCommit")
APIS = {"classic": (*SHARED, "JoinGroup", "SyncGroup", "Heartbeat"), "consumer": (*SHARED, "ConsumerGroupHeartbeat")}
SHORT_MS = 5
REQUEST_TIMEOUT_MS = 500

SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": 50,
    "fetch_max_wait_ms": 50,
    "max_partition_fetch_bytes": 300,  # a batch or two: many fetches
    "metadata_max_age_ms": 300,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
}


def rule(name: str, **fixed: Any) -> Callable[..., Rule]:
    return lambda *apis, **when: getattr(Rule, name)(*apis, **fixed, **when)


@dataclass(frozen=True)
class Trouble:
    makes: tuple[Callable[..., Rule], ...]
    counter: str
    hits: int = 2
    """So often every API is hit, whoever asks: a group that is never let through could never go on."""
    options: tuple[tuple[str, Any], ...] = ()

    def rules(self, protocol: str) -> list[Rule]:
        return [one for make in self.makes for one in self._of(make, protocol)]

    def _of(self, make: Callable[..., Rule], protocol: str) -> Iterator[Rule]:
        for api in APIS[protocol]:
            if api == "JoinGroup":
                # Not the first: who is given an id and never hears it lets the others wait until its session ends.
                yield make(api, every=2, limit=2 * self.hits)
            else:
                yield make(api, limit=self.hits)
                yield make(api, every=3, limit=self.hits)
        yield make("Fetch", every=7, limit=5 * self.hits)


TROUBLES = {
    "lost": Trouble(
        (rule("drop_request", cut_after_ms=SHORT_MS), rule("drop_response", cut_after_ms=SHORT_MS)), "dropped"
    ),
    "doubled": Trouble((rule("duplicate_request"),), "duplicated"),
    "cut off": Trouble((rule("cut"), rule("cut", on="response")), "cut"),
    "not answered": Trouble(
        (rule("stall", ms=2 * REQUEST_TIMEOUT_MS),), "stalled", 1, (("request_timeout_ms", REQUEST_TIMEOUT_MS),)
    ),
}
MORE_TROUBLES = {
    "late": Trouble((rule("delay", ms=(1, 60)), rule("delay", ms=(1, 60), on="response")), "delayed"),
    "torn": Trouble((rule("truncate_request"), rule("truncate_response")), "truncated"),
    "overtaken": Trouble((rule("reorder_requests", within_ms=20),), ""),
    "answered twice": Trouble((rule("duplicate_response"),), "duplicated"),
}
"""To a member they look much like the others: one broker is enough."""


class Member:
    """Reads, commits by itself or by hand, and has it all written down."""

    def __init__(self, books: Books, name: str, consumer: Consumer, topic: str) -> None:
        self.name = name
        self.consumer = consumer
        self._books = books
        self._commits = not consumer.config.enable_auto_commit
        consumer.subscribe(
            topic,
            on_assigned=lambda _, partitions: books.assigned(name, partitions),
            on_revoked=lambda _, partitions: self._revoked(partitions),
            on_lost=lambda _, partitions: books.let_go(name, partitions),
        )

    def __repr__(self) -> str:
        return f"{self.name} {self.consumer.group_metadata()} {sorted(self.consumer.assignment())}"

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.commit()
        self._books.let_go(self.name, partitions)

    def commit(self) -> None:
        """Failing only means that records come again."""
        if self._commits:
            try:
                self.consumer.commit()
            except (CommitFailed, ConsumerTimedOut) as error:
                print(f"{self.name}: {error!r}")

    def step(self) -> None:
        offsets: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        for record in self.consumer.poll(0.02):
            offsets[TopicPartition(record.topic, record.partition)].append(record.offset)
        for partition, some in offsets.items():
            self._books.handed_out(self.name, partition, some)
        self.commit()


class Group:
    def __init__(self, broker: BrokerProcess, servers: str, topic: str, settings: dict[str, Any]) -> None:
        self.books = Books()
        self.members: list[Member] = []
        self.partitions = create(broker, topic, PARTITIONS)
        self.group_id = f"group-of-{topic}"
        self._broker = broker
        self._servers = servers
        self._topic = topic
        self._settings = {**SETTINGS, **settings}
        self._written = 0
        self._joined = 0

    def join(self) -> None:
        """Every other member commits by hand."""
        self._joined += 1
        automatic = {"enable_auto_commit": self._joined % 2 == 1}
        consumer = Consumer(self._servers, group_id=self.group_id, **self._settings, **automatic)
        self.members.append(Member(self.books, f"member {self._joined}", consumer, self._topic))

    def leave(self) -> None:
        member = self.members.pop(0)
        member.consumer.close()

    def read_all(self) -> None:
        """Every member has something to do, and what is written now is read by whoever owns it now."""
        for index in range(PARTITIONS):
            for batch in range(BATCHES_PER_PHASE):
                write(self._broker, self._topic, numbered(self._written + batch * BATCH, BATCH), index)
        self._written += BATCHES_PER_PHASE * BATCH
        try:
            eventually(self._is_read, f"all {self._written} records of each partition")
        except AssertionError as error:
            error.add_note(f"handed out: {sorted(self.books.handed_up_to.items())}, members: {self.members}")
            raise

    def _is_read(self) -> bool:
        for member in self.members:
            member.step()
        owners = [len(member.consumer.assignment()) for member in self.members]
        return min(owners) > 0 and all(self.books.handed_up_to[one] == self._written for one in self.partitions)

    def close(self) -> None:
        while self.members:
            self.leave()


@pytest.fixture
def group_of(broker: BrokerProcess, new_topic: Callable[[], str]) -> Iterator[Callable[..., Group]]:
    with ExitStack() as stack:

        def make(servers: str, settings: dict[str, Any]) -> Group:
            group = Group(broker, servers, new_topic(), settings)
            stack.callback(group.close)
            return group

        yield make


def committed_offsets(broker: BrokerProcess, group: str, partitions: Iterable[TopicPartition]) -> dict[Any, int]:
    with Consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as witness:
        return {one: found.offset for one, found in witness.committed(*partitions).items() if found is not None}


def offsets_are_not_ahead(broker: BrokerProcess, group: Group) -> None:
    for partition, offset in committed_offsets(broker, group.group_id, group.partitions).items():
        handed = group.books.handed_up_to[partition]
        assert offset <= handed, f"{offset} of {partition} is committed, {handed} was never handed out"


@on_both_brokers_at_full_size
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_through_faults_every_record_is_handed_out_in_order(
    broker: BrokerProcess, group_of: Callable[..., Group], rng: random.Random, trouble: str, protocol: str
) -> None:
    go_through(broker, group_of, rng, TROUBLES[trouble], protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("trouble", MORE_TROUBLES)
def test_and_through_stranger_ones(
    broker: BrokerProcess, group_of: Callable[..., Group], rng: random.Random, trouble: str, protocol: str
) -> None:
    go_through(broker, group_of, rng, MORE_TROUBLES[trouble], protocol)


def go_through(
    broker: BrokerProcess, group_of: Callable[..., Group], rng: random.Random, trouble: Trouble, protocol: str
) -> None:
    with FaultProxy(broker.bootstrap, trouble.rules(protocol), seed=rng.getrandbits(32)) as proxy:
        group = group_of(proxy.bootstrap_servers, {**PROTOCOLS[protocol], **dict(trouble.options)})
        group.join()
        group.join()
        group.read_all()
        group.join()
        group.read_all()
        proxy.heal()  # a member says once that it leaves: if that is lost, its partitions wait until its session ends
        group.leave()
        group.read_all()
        offsets_are_not_ahead(broker, group)
        report = proxy.report()
        group.close()
        offsets_are_not_ahead(broker, group)
    for api in APIS[protocol] if trouble.counter else ():
        hits = getattr(report.requests[api], trouble.counter) + getattr(report.responses[api], trouble.counter)
        assert hits, f"{api} was not hit\n{report}"


@on_both_brokers_at_full_size
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_faults_nothing_is_handed_out_twice(
    broker: BrokerProcess, group_of: Callable[..., Group], protocol: str
) -> None:
    group = group_of(broker.bootstrap, PROTOCOLS[protocol])
    group.join()
    group.join()
    for _ in range(REBALANCES // 2):
        group.join()
        group.read_all()
        group.leave()
        group.read_all()
    group.close()
    assert group.books.repeated == 0
    ends = committed_offsets(broker, group.group_id, group.partitions)
    assert ends == {partition: group.books.handed_up_to[partition] for partition in group.partitions}
