"""Classic groups and offsets over raw requests: in every version, and on every way to an error, Kafka's answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.batches import make_batch
from tests.support.compare import error_codes
from tests.support.groups import (
    assert_same_script,
    await_coordinator,
    commit_request,
    find_coordinator,
    join_alone,
    join_request,
    subscription,
    sync_request,
)
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic, produce

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]
Ask = tuple[str, int, Message]

NO_SUCH_MEMBER = "nobody-1"
LONG_METADATA = "x" * 5_000


@pytest.fixture
def group(new_topic: Topics) -> str:
    return f"group-of-{new_topic()}"


def ask_all(client: RawClient, asks: list[Ask]) -> list[Message]:
    return [client.request(*ask) for ask in asks]


@pytest.mark.parametrize("version", range(7))
def test_finding_a_coordinator(both_brokers: Brokers, group: str, version: int) -> None:
    answers = assert_same_script(both_brokers, lambda client: [find_coordinator(client, group, version)])
    assert error_codes(answers) == [0]


@pytest.mark.parametrize("key_type", [2, 7])
def test_keys_of_other_types(both_brokers: Brokers, group: str, key_type: int) -> None:
    """Share groups are named in a way of their own, which this is not; and there is no seventh type."""
    asked = {"key": group, "key_type": key_type, "coordinator_keys": [group]}
    assert_same_script(both_brokers, lambda client: [client.request("find_coordinator", 6, asked)])


@pytest.mark.parametrize("step", range(10))
def test_the_life_of_a_group_in_every_version(both_brokers: Brokers, group: str, new_topic: Topics, step: int) -> None:
    """Step after step each API is asked in its next version, until all of them are at their newest."""
    topic = new_topic()

    def live(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        topic_id = create_topic(client, topic, partitions=2)
        answers = []

        def ask(api: str, lowest: int, highest: int, body: Message) -> Message:
            answer = client.request(api, min(lowest + step, highest), body)
            answers.append(answer)
            return answer

        wanted = {"protocols": [{"name": "range", "metadata": subscription(topic)}]}
        joined = ask("join_group", 0, 9, join_request(group, **wanted))
        if joined["error_code"]:
            joined = ask("join_group", 0, 9, join_request(group, joined["member_id"], **wanted))
        member = {"group_id": group, "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
        ask("describe_groups", 0, 6, {"groups": [group], "include_authorized_operations": True})
        ask("sync_group", 0, 5, sync_request(group, joined, {joined["member_id"]: b"all of it"}))
        ask("heartbeat", 0, 4, member)
        offsets = commit_request(group, (topic, 0, 5), (topic, 1, 7), member=joined)
        for each in offsets["topics"]:
            each["topic_id"] = topic_id
        ask("offset_commit", 2, 10, offsets)
        indexes = {"name": topic, "topic_id": topic_id, "partition_indexes": [0, 1, 5]}
        for topics in ([indexes], [] if step == 0 else None):
            everything = {"group_id": group, "topics": topics}
            ask("offset_fetch", 1, 10, {**everything, "groups": [everything], "require_stable": True})
        ask("describe_groups", 0, 6, {"groups": [group, f"{group}-unknown"], "include_authorized_operations": True})
        ask("delete_groups", 0, 2, {"groups_names": [group]})
        leaving = {"member_id": joined["member_id"], "group_instance_id": None}
        ask("leave_group", 0, 5, {"group_id": group, "member_id": joined["member_id"], "members": [leaving]})
        ask("offset_delete", 0, 0, offset_deletion(group, topic))
        ask("describe_groups", 0, 6, {"groups": [group]})
        listed = client.request("list_groups", min(step, 5), {"states_filter": ["Empty"], "types_filter": ["classic"]})
        answers.append({"groups": [each for each in listed["groups"] if each["group_id"] == group]})
        ask("delete_groups", 0, 2, {"groups_names": [group, f"{group}-unknown"]})
        return answers

    answers = assert_same_script(both_brokers, live)
    assert answers[-1]["results"][0]["error_code"] == 0


JOINS: dict[str, dict[str, Any]] = {
    "an empty group id": {"group_id": ""},
    "a session too short": {"session_timeout": 10},
    "a session too long": {"session_timeout": 2_000_000},
    "an unknown member": {"member_id": NO_SUCH_MEMBER},
    "no protocol": {"protocols": []},
    "no protocol type": {"protocol_type": ""},
    "another protocol type": {"protocol_type": "connect"},
    "another protocol": {"protocols": [{"name": "other", "metadata": b""}]},
    "a static member that is none": {"member_id": NO_SUCH_MEMBER, "group_instance_id": "i-1"},
}


@pytest.mark.parametrize("case", JOINS)
@pytest.mark.parametrize("is_new", [True, False], ids=["new group", "stable group"])
def test_joins_that_are_refused(both_brokers: Brokers, group: str, case: str, is_new: bool) -> None:
    def join(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        if not is_new:
            join_alone(client, group)
        wrong = join_request(group, **JOINS[case])
        answers = [client.request("join_group", 9, wrong)]
        if is_new and case.startswith("another"):
            return []  # of the first member anything goes
        return answers

    assert_same_script(both_brokers, join)


def wrongs(group: str, member: Message, topic: str) -> list[Ask]:
    """One request after the other in which something is wrong; the last two are right, and show that nothing broke."""
    me, now = member["member_id"], member["generation_id"]
    identity = {"group_id": group, "member_id": me, "generation_id": now}
    known = (topic, 0, 5)
    return [
        ("heartbeat", 4, {**identity, "group_id": ""}),
        ("heartbeat", 4, {**identity, "group_id": f"{group}-unknown"}),
        ("heartbeat", 4, {**identity, "member_id": NO_SUCH_MEMBER}),
        ("heartbeat", 4, {**identity, "generation_id": now + 1}),
        ("heartbeat", 4, {**identity, "group_instance_id": "i-1"}),
        ("sync_group", 5, sync_request("", member, {})),
        ("sync_group", 5, sync_request(f"{group}-unknown", member, {})),
        ("sync_group", 5, sync_request(group, member, {}, member_id=NO_SUCH_MEMBER)),
        ("sync_group", 5, sync_request(group, member, {}, generation_id=now + 1)),
        ("sync_group", 5, sync_request(group, member, {}, protocol_type="connect")),
        ("sync_group", 5, sync_request(group, member, {}, protocol_name="other")),
        ("leave_group", 5, {"group_id": "", "members": [{"member_id": me}]}),
        ("leave_group", 5, {"group_id": f"{group}-unknown", "members": [{"member_id": me}]}),
        ("leave_group", 5, {"group_id": group, "members": [{"member_id": NO_SUCH_MEMBER}]}),
        ("leave_group", 5, {"group_id": group, "members": [{"member_id": "", "group_instance_id": "i-1"}]}),
        ("leave_group", 5, {"group_id": group, "members": []}),
        ("leave_group", 2, {"group_id": group, "member_id": NO_SUCH_MEMBER}),
        ("offset_commit", 9, commit_request(group, known)),
        ("offset_commit", 9, commit_request(group, known, member=member, member_id=NO_SUCH_MEMBER)),
        ("offset_commit", 9, commit_request(group, known, member=member, generation_id_or_member_epoch=now + 1)),
        ("offset_commit", 9, commit_request(group, known, member=member, group_instance_id="i-1")),
        ("offset_commit", 9, commit_request(f"{group}-unknown", known, member=member)),
        ("offset_commit", 9, commit_request(group, (topic, 9, 5), (f"{topic}-unknown", 0, 5), known, member=member)),
        ("offset_commit", 9, long_metadata(commit_request(group, known, (topic, 1, 3), member=member))),
        ("offset_commit", 9, commit_request(group, member=member)),
        ("offset_commit", 9, commit_request("", known)),
        ("offset_fetch", 8, fetch_request(f"{group}-unknown", topic)),
        ("offset_fetch", 8, fetch_request(group, f"{topic}-unknown")),
        ("offset_fetch", 9, fetch_request(group, topic, member_id=NO_SUCH_MEMBER, member_epoch=now)),
        ("offset_fetch", 9, fetch_request(group, topic, member_id=me, member_epoch=now + 1)),
        ("offset_fetch", 8, fetch_request("", topic)),
        ("describe_groups", 6, {"groups": [""]}),
        ("describe_groups", 6, {"groups": []}),
        ("delete_groups", 2, {"groups_names": ["", group, f"{group}-unknown"]}),
        ("offset_delete", 0, offset_deletion("", topic)),
        ("offset_delete", 0, offset_deletion(f"{group}-unknown", topic)),
        ("offset_delete", 0, offset_deletion(group, f"{topic}-unknown")),
        ("offset_delete", 0, offset_deletion(group, "a-topic")),
        ("consumer_group_describe", 1, {"group_ids": [group, "", f"{group}-unknown"]}),
        ("heartbeat", 4, identity),
        ("offset_commit", 9, commit_request(group, known, member=member)),
    ]


def long_metadata(request: Message) -> Message:
    request["topics"][0]["partitions"][0]["committed_metadata"] = LONG_METADATA
    return request


def fetch_request(group: str, topic: str, **fields: Any) -> Message:
    wanted = [{"name": topic, "partition_indexes": [0, 7]}]
    return {"groups": [{"group_id": group, "topics": wanted, "member_epoch": -1, **fields}]}


def offset_deletion(group: str, topic: str) -> Message:
    return {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}


def test_whatever_is_wrong_in_a_stable_group(both_brokers: Brokers, group: str, new_topic: Topics) -> None:
    topic = new_topic()

    def go_wrong(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        create_topic(client, topic, partitions=2)
        member = join_alone(client, group)
        return ask_all(client, wrongs(group, member, topic))

    answers = assert_same_script(both_brokers, go_wrong)
    assert error_codes(answers[-2:]) == [0, 0]


def test_offsets_without_members(both_brokers: Brokers, group: str, new_topic: Topics) -> None:
    """What tools do: they commit, read and delete offsets of a group that has no members."""
    topic = new_topic()

    def administer(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        create_topic(client, topic, partitions=2)
        return ask_all(
            client,
            [
                ("offset_commit", 8, commit_request(group, (topic, 0, 5), (topic, 1, -1))),
                ("offset_commit", 8, commit_request(group, (topic, 0, 6), generation_id_or_member_epoch=3)),
                ("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}),
                ("describe_groups", 6, {"groups": [group]}),
                ("consumer_group_describe", 1, {"group_ids": [group]}),
                ("offset_delete", 0, offset_deletion(group, topic)),
                ("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}),
                ("delete_groups", 2, {"groups_names": [group, group]}),
                ("describe_groups", 6, {"groups": [group]}),
            ],
        )

    assert_same_script(both_brokers, administer)


def test_static_members(both_brokers: Brokers, group: str) -> None:
    static = {"group_instance_id": "i-1"}

    def replace(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        first = join_alone(client, group, **static)
        again = client.request("join_group", 9, join_request(group, **static))
        old = {"group_id": group, "generation_id": first["generation_id"], "member_id": first["member_id"], **static}
        new = {**old, "member_id": again["member_id"]}
        return [
            first,
            again,
            *ask_all(
                client,
                [
                    ("heartbeat", 4, old),
                    ("heartbeat", 4, new),
                    ("heartbeat", 4, {**new, "group_instance_id": "i-2"}),
                    ("sync_group", 5, sync_request(group, first, {}, **static)),
                    ("sync_group", 5, sync_request(group, again, {}, **static)),
                    ("join_group", 9, join_request(group, first["member_id"], **static)),
                    ("leave_group", 5, {"group_id": group, "members": [{"member_id": first["member_id"], **static}]}),
                    ("leave_group", 5, {"group_id": group, "members": [{"member_id": "", **static}]}),
                    ("heartbeat", 4, new),
                    ("describe_groups", 6, {"groups": [group]}),
                ],
            ),
        ]

    assert_same_script(both_brokers, replace)


def test_two_members_rebalance(both_brokers: Brokers, group: str) -> None:
    """The second one's join waits until the first has joined again, and each hears what the leader decided for it."""

    def rebalance(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        leader = join_alone(client, group)
        me = {"group_id": group, "generation_id": leader["generation_id"], "member_id": leader["member_id"]}
        address = client.socket.getpeername()
        with RawClient(address) as other:
            refused = other.request("join_group", 9, join_request(group))
            waiting = other.send("join_group", 9, join_request(group, refused["member_id"]))
            beats = _beat_until_rebalance(client, me)
            again = client.request("join_group", 9, join_request(group, leader["member_id"]))
            joined = other.receive("join_group", 9, waiting)
            synced_later = other.send("sync_group", 5, sync_request(group, joined, {}))
            shares = {again["member_id"]: b"first", joined["member_id"]: b"second"}
            synced = client.request("sync_group", 5, sync_request(group, again, shares))
            assigned = other.receive("sync_group", 5, synced_later)
            stale = client.request("heartbeat", 4, me)
            again["members"].sort(key=lambda each: each["member_id"] != leader["member_id"])
            return [leader, refused, beats, again, joined, synced, assigned, stale]

    answers = assert_same_script(both_brokers, rebalance)
    assert (answers[5]["assignment"], answers[6]["assignment"]) == (b"first", b"second")


def _beat_until_rebalance(client: RawClient, member: Message) -> Message:
    """The other's join may be on its way still."""
    while True:
        answer = client.request("heartbeat", 4, member)
        if answer["error_code"]:
            return answer


def test_the_topic_of_the_groups_is_no_clients(both_brokers: Brokers, group: str) -> None:
    def write(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        deletion = {"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}
        return [
            {"error_code": produce(client, "__consumer_offsets", make_batch([b"x"]))["error_code"]},
            client.request("delete_records", 2, {"topics": [deletion], "timeout": 1_000}),
        ]

    answers = assert_same_script(both_brokers, write)
    assert error_codes(answers) == [17, 17]


def described_configs(client: RawClient) -> dict[str, str]:
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configuration_keys": None}
    (result,) = client.request("describe_configs", 4, {"resources": [resource]})["results"]
    return {each["name"]: each["value"] for each in result["configs"] if each["config_source"] == 1}


def test_the_topic_of_the_groups_is_configured_as_kafkas(both_brokers: Brokers, group: str) -> None:
    configs = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            await_coordinator(client, group)
            configs[kind] = described_configs(client)
            (topic,) = client.request("metadata", 12, {"topics": [{"name": "__consumer_offsets"}]})["topics"]
            assert topic["is_internal"]
    assert len({str(sorted(each.items())) for each in configs.values()}) == 1
