"""Groups over raw requests: members under the test's control, and answers that can be compared between brokers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from tests.support.compare import assert_equal, masked
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient

SETTLE_TIMEOUT_S = 30.0
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ID_FIELDS = ("member_id", "leader")
EPOCH_FIELDS = ("member_epoch", "group_epoch", "assignment_epoch")


def find_coordinator(client: RawClient, group: str, version: int = 4) -> Message:
    """Kafka creates the topic of the groups when it is first asked, and says so until it is there."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        asked = {"key": group, "key_type": 0, "coordinator_keys": [group]}
        answer = client.request("find_coordinator", version, asked)
        (found,) = answer.get("coordinators", [answer])
        if found["error_code"] != COORDINATOR_NOT_AVAILABLE:
            return answer
        assert time.monotonic() < deadline, f"no coordinator: {found}"
        time.sleep(0.05)


def await_coordinator(client: RawClient, group: str) -> None:
    """Kafka tells the coordinator a moment before it coordinates."""
    find_coordinator(client, group)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    busy = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
    while client.request("describe_groups", 5, {"groups": [group]})["groups"][0]["error_code"] in busy:
        assert time.monotonic() < deadline, "the coordinator does not get ready"
        time.sleep(0.05)


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself in a JoinGroup: version 0, the topics, no user data."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join_request(group: str, member_id: str = "", **fields: Any) -> Message:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("a-topic")}],
        **fields,
    }


def sync_request(group: str, joined: Message, assignments: dict[str, bytes], **fields: Any) -> Message:
    return {
        "group_id": group,
        "generation_id": joined["generation_id"],
        "member_id": joined["member_id"],
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": each, "assignment": data} for each, data in assignments.items()],
        **fields,
    }


def join_alone(client: RawClient, group: str, version: int = 9, **fields: Any) -> Message:
    """The only member of a classic group, stable: its JoinGroup answer."""
    joined = client.request("join_group", version, join_request(group, **fields))
    if joined["error_code"] == 79:  # MEMBER_ID_REQUIRED
        joined = client.request("join_group", version, join_request(group, joined["member_id"], **fields))
    assert joined["error_code"] == 0, joined
    synced = client.request("sync_group", 5, sync_request(group, joined, {joined["member_id"]: b"all"}))
    assert synced["error_code"] == 0, synced
    return joined


def commit_request(group: str, *topics: tuple[str, int, int], member: Message | None = None, **fields: Any) -> Message:
    """Offsets as (topic, partition, offset), of a member if there is one."""
    who = {} if member is None else {"member_id": member["member_id"]}
    if member is not None:
        who["generation_id_or_member_epoch"] = member.get("generation_id", member.get("member_epoch"))
    wanted: dict[str, list[Message]] = {}
    for topic, index, offset in topics:
        partition = {"partition_index": index, "committed_offset": offset, "committed_metadata": "x"}
        wanted.setdefault(topic, []).append(partition)
    named = [{"name": topic, "partitions": partitions} for topic, partitions in wanted.items()]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": named, **who, **fields}


def heartbeat_request(group: str, member_id: str, epoch: int, **fields: Any) -> Message:
    """Of the KIP-848 protocol; a first one (epoch 0) says everything."""
    said: Message = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": -1}
    if epoch == 0:
        said |= {"rebalance_timeout": 30_000, "subscribed_topic_names": [], "topic_partitions": []}
    return {**said, **fields}


class Names:
    """Ids that a broker invented, numbered in the order of their appearance, and the epochs of a consumer group counted
    from the first one, so that answers compare."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._first_epoch: int | None = None

    def plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._named(key, each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        return value

    def _named(self, key: str, value: Any) -> Any:
        if key in ID_FIELDS and isinstance(value, str) and value:
            return self._numbers.setdefault(value, f"member {len(self._numbers) + 1}")
        if key in EPOCH_FIELDS and value > 0:
            self._first_epoch = self._first_epoch or value
            return f"epoch {value - self._first_epoch:+}"
        if key == "subscribed_topic_regex":
            return value or ""  # nobody tells null from empty
        return self.plain(value)


Script = Callable[[RawClient], list[Message]]


def assert_same_script(brokers: dict[str, BrokerProcess], script: Script) -> list[Message]:
    """Both brokers give the same answers to what the script asks; the answers of the last one."""
    answers: dict[str, list[Message]] = {}
    for kind, broker in brokers.items():
        with RawClient(broker.address) as client:
            names = Names()
            answers[kind] = [masked(names.plain(answer)) for answer in script(client)]
    assert_equal(answers)
    return next(reversed(answers.values()))
