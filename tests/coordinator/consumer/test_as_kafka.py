"""The same conversations with Apache Kafka and with this coordinator: both answer the same.

Compared are errors, epochs and how many partitions an assignment has; which ones is an assignor's own business.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from oncelog.coordinator.effects import GroupSettings
from oncelog.wire.api import ApiKey, request_header_version, response_header_version
from oncelog.wire.codec import Message, decode, decode_exactly, encode
from oncelog.wire.primitives import uvarint
from tests.coordinator.consumer.clients import NewClient, OldClient
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics, Kip848Client
from tests.support.kafka import KafkaBroker
from tests.support.patience import eventually
from tests.support.raw import RawClient

pytestmark = pytest.mark.kafka

TOPICS = {"orders": 4, "payments": 2}
# Kafka may delay assignments, and compute them in another thread. What it answers then depends on its timing.
SETTINGS = {
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}
Heard = list[tuple[Any, ...]]


class KafkaTopics:
    """Only names and ids: clients of the classic protocol read by name."""

    def __init__(self, ids: dict[str, UUID]) -> None:
        self._ids = ids

    def topic_id(self, name: str) -> UUID | None:
        return self._ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, name: str) -> int | None:
        return TOPICS.get(name)

    def names(self) -> list[str]:
        return list(TOPICS)


class Kafka:
    """What `Coordinator` is for a test, over a socket. Each request goes out alone, so nothing may have to wait."""

    def __init__(self, client: RawClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._correlation_ids = itertools.count(1)
        metadata = self.ask("Metadata", 12, {"topics": None})
        self.topics = KafkaTopics({topic["name"]: topic["topic_id"] for topic in metadata["topics"]})
        self._answers: dict[int, Message] = {}

    def ask(self, api: str, version: int, body: Message) -> Message:
        if "group_id" in body:
            body = body | {"group_id": self._group_id}
        key = next(key for key in ApiKey if key.schema_prefix == api)
        correlation_id = next(self._correlation_ids)
        head = struct.pack(">hhih", key, version, correlation_id, 4) + b"test"
        if request_header_version(key, version) == 2:
            head += uvarint(0)
        frame = head + encode(f"{api}Request", version, body)
        self._client.send_bytes(struct.pack(">i", len(frame)) + frame)
        answer = self._client.receive_frame()
        return decode(f"{api}Response", version, answer, 4 + response_header_version(key, version))[0]

    def send(self, api: str, version: int, body: Message) -> int:
        ticket = next(self._correlation_ids)
        self._answers[ticket] = self.ask(api, version, body)
        return ticket

    def answer(self, ticket: int) -> Message | None:
        return self._answers.pop(ticket, None)


@pytest.fixture(scope="module")
def kafka_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker, RawClient(broker.address) as client:
        maker = Kafka(client, "first")
        topics = [{"name": name, "num_partitions": n, "replication_factor": 1} for name, n in TOPICS.items()]
        maker.ask("CreateTopics", 5, {"topics": topics, "timeout_ms": 30_000})
        coordinator_key = {"key_type": 0, "coordinator_keys": [GROUP]}
        while maker.ask("FindCoordinator", 4, coordinator_key)["coordinators"][0]["error_code"]:
            pass
        body = {"group_id": GROUP, "member_id": "x", "member_epoch": 1}
        while _heartbeat(maker, body)["error_code"] in (14, 15, 16):
            pass
        _await_topics(client)
        yield client


def _await_topics(client: RawClient) -> None:
    """Kafka's coordinator hears of topics later than its clients; who joins before then is assigned nothing."""
    scouts: Any = Kafka(client, "scouts")

    def are_known() -> bool:
        member = Kip848Client(scouts, "scout", topics=list(TOPICS))
        assignment = member.beat()["assignment"]
        member.leave()
        return assignment is not None and len(assignment["topic_partitions"]) == len(TOPICS)

    eventually(are_known, "the coordinator knows all topics")


def _heartbeat(kafka: Kafka, body: Message) -> Message:
    return kafka.ask("ConsumerGroupHeartbeat", 1, body)


@pytest.fixture
def both(kafka_client: RawClient, request: pytest.FixtureRequest) -> list[Any]:
    own = Coordinator(FakeTopics(**TOPICS), GroupSettings(group_initial_rebalance_delay_ms=0))
    return [own, Kafka(kafka_client, request.node.name)]


def told(answer: Message) -> tuple[Any, ...]:
    """What two coordinators must agree on."""
    assignment = answer["assignment"]
    if assignment is not None:
        assignment = sum(len(topic["partitions"]) for topic in assignment["topic_partitions"])
    return answer["error_code"], answer["member_epoch"], assignment


def test_two_members_share_and_one_goes(both: list[Any]) -> None:
    heard: list[Heard] = []
    for coordinator in both:
        a, b = Kip848Client(coordinator, "a"), Kip848Client(coordinator, "b", topics=["orders", "payments"])
        steps = [a.beat, b.beat, a.beat_in_silence, b.beat, a.beat_in_silence, a.beat, b.beat, a.beat, b.beat, a.leave]
        steps += [b.beat, b.beat, lambda b=b: b.beat(**b.everything()), b.leave, b.beat]
        heard.append([told(step()) for step in steps])
    assert heard[0] == heard[1]


def test_epochs_that_do_not_fit(both: list[Any]) -> None:
    heard: list[Heard] = []
    for coordinator in both:
        a, b = Kip848Client(coordinator, "a"), Kip848Client(coordinator, "b")
        said = [told(client.beat()) for client in (a, b, a, a, b)]
        had, epoch = set(a.owned), a.epoch
        for member_epoch, owned in (
            (epoch + 1, had),
            (epoch - 1, None),
            (epoch - 1, set(b.owned)),
            (99, had),
            (epoch, had),
        ):
            a.epoch, a.owned = member_epoch, owned or set()
            changes = {"topic_partitions": None} if owned is None else {}
            said.append(told(a.beat(**changes)))
        stranger = Kip848Client(coordinator, "stranger", epoch=3)
        said += [told(stranger.beat()), told(stranger.leave())]
        heard.append(said)
    assert heard[0] == heard[1]


def test_requests_that_are_none(both: list[Any]) -> None:
    join = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    changes: list[Message] = [
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"member_epoch": -2},
        {"member_epoch": -3, "instance_id": "i"},
        {"member_epoch": 7},
        {"member_epoch": -1},
        {"server_assignor": "sticky"},
        {"subscribed_topic_regex": "("},
        {"subscribed_topic_regex": "(?=a)"},
    ]
    heard = [
        [coordinator.ask("ConsumerGroupHeartbeat", 1, join | change)["error_code"] for change in changes]
        for coordinator in both
    ]
    assert heard[0] == heard[1]


def test_static_members(both: list[Any]) -> None:
    heard: list[Heard] = []
    for coordinator in both:
        a, b = Kip848Client(coordinator, "a", instance_id="i"), Kip848Client(coordinator, "b")
        said = [told(client.beat()) for client in (a, b, a, a, b)]
        epoch = a.epoch
        thief = Kip848Client(coordinator, "thief", instance_id="i")
        said += [told(thief.beat()), told(a.leave(-2)), told(b.beat()), told(thief.beat())]
        a.epoch = epoch
        said += [told(a.beat()), told(a.leave(-2)), told(a.leave(-1)), told(thief.leave(-1)), told(b.beat())]
        heard.append(said)
    assert heard[0] == heard[1]


def test_a_subscription_that_changes(both: list[Any]) -> None:
    heard: list[Heard] = []
    for coordinator in both:
        a, b = Kip848Client(coordinator, "a"), Kip848Client(coordinator, "b")
        said = [told(client.beat()) for client in (a, b, a, a, b)]
        said += [told(a.beat(subscribed_topic_names=["payments"]))]
        said += [told(client.beat()) for client in (b, a, b, a, b)]
        heard.append(said)
    assert heard[0] == heard[1]


def test_old_and_new_members_in_one_group(both: list[Any]) -> None:
    """A join of the classic protocol, its syncs and heartbeats, in a group that stays a consumer group."""
    heard: list[Heard] = []
    for coordinator in both:
        new = NewClient(coordinator, "new", ["orders"])
        old = OldClient(coordinator, "old", ["orders"])
        said: Heard = []
        for client in (new, old, new, old, new, old, old, new, old):
            client.act()
            said.append((client.is_in, len(client.has), getattr(client, "generation", None)))
        heard.append(said)
    assert heard[0] == heard[1]


def test_what_is_described(both: list[Any]) -> None:
    heard = []
    for coordinator in both:
        a, b = Kip848Client(coordinator, "a", instance_id="i"), Kip848Client(coordinator, "b", assignor="range")
        a.beat()
        b.beat()
        group_id = GROUP if isinstance(coordinator, Coordinator) else coordinator._group_id
        answer = coordinator.ask("ConsumerGroupDescribe", 1, {"group_ids": [group_id]})
        (group,) = decode_exactly(
            "ConsumerGroupDescribeResponse", 1, encode("ConsumerGroupDescribeResponse", 1, answer)
        )["groups"]
        members = {
            member["member_id"]: (
                member["instance_id"],
                member["member_epoch"],
                member["member_type"],
                member["subscribed_topic_names"],
                sum(len(topic["partitions"]) for topic in member["assignment"]["topic_partitions"]),
                sum(len(topic["partitions"]) for topic in member["target_assignment"]["topic_partitions"]),
            )
            for member in group["members"]
        }
        state = (group["group_state"], group["group_epoch"], group["assignment_epoch"], group["assignor_name"])
        heard.append((state, members))
    assert heard[0] == heard[1]
