"""KIP-848 groups over raw requests: membership, errors, offsets and descriptions as Kafka's; and group configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.compare import Ask, assert_same, error_codes
from tests.support.groups import (
    assert_same_script,
    await_coordinator,
    commit_request,
    heartbeat_request,
    join_alone,
    join_request,
)
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic
from tests.support.transactions import HandProducer, await_transactions

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"
GROUP, SET, DELETE, APPEND = 32, 0, 1, 2
GROUP_SOURCE = 8


@pytest.fixture
def group(new_topic: Topics) -> str:
    return f"group-of-{new_topic()}"


def beat(client: RawClient, group: str, member: str, epoch: int, version: int = 1, **fields: Any) -> Message:
    return client.request("consumer_group_heartbeat", version, heartbeat_request(group, member, epoch, **fields))


def await_assignable(client: RawClient, group: str, topic: str) -> None:
    """Kafka's coordinator hears of a new topic later than its clients; who joins before then is assigned nothing."""
    scouts = f"{group}-scouts"

    def is_assigned() -> bool:
        joined = beat(client, scouts, OTHER, 0, subscribed_topic_names=[topic])
        beat(client, scouts, OTHER, -1)
        return bool(joined["assignment"]["topic_partitions"])

    eventually(is_assigned, f"{topic} is assigned to those who join")


def test_the_life_of_a_member(both_brokers: Brokers, group: str, new_topic: Topics) -> None:
    topic = new_topic()

    def live(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        topic_id = create_topic(client, topic, partitions=2)
        await_assignable(client, group, topic)
        joined = beat(client, group, MEMBER, 0, subscribed_topic_names=[topic])
        owned = {"topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1]}]}
        epoch = joined["member_epoch"]
        offsets = commit_request(group, (topic, 0, 5), member=joined)
        wanted = [{"name": topic, "partition_indexes": [0, 1]}]
        fetched = {"group_id": group, "member_id": MEMBER, "member_epoch": epoch, "topics": wanted}
        return [
            joined,
            beat(client, group, MEMBER, epoch, **owned),
            beat(client, group, MEMBER, epoch),
            client.request("offset_commit", 9, offsets),
            client.request("offset_commit", 8, offsets),
            client.request("offset_commit", 9, {**offsets, "generation_id_or_member_epoch": epoch + 1}),
            client.request("offset_commit", 9, {**offsets, "generation_id_or_member_epoch": epoch - 1}),
            client.request("offset_commit", 9, {**offsets, "member_id": OTHER}),
            client.request("offset_commit", 9, commit_request(group, (topic, 0, 5))),
            client.request("offset_fetch", 9, {"groups": [fetched]}),
            client.request("offset_fetch", 9, {"groups": [{**fetched, "member_epoch": epoch + 1}]}),
            client.request("offset_fetch", 9, {"groups": [{**fetched, "member_id": OTHER}]}),
            *(client.request("consumer_group_describe", version, {"group_ids": [group]}) for version in (0, 1)),
            client.request("describe_groups", 5, {"groups": [group]}),
            client.request("describe_groups", 6, {"groups": [group]}),
            client.request("delete_groups", 2, {"groups_names": [group]}),
            client.request("heartbeat", 4, {"group_id": group, "generation_id": epoch, "member_id": MEMBER}),
            beat(client, group, MEMBER, -1),
            beat(client, group, MEMBER, epoch),
            client.request("consumer_group_describe", 1, {"group_ids": [group]}),
            client.request("offset_fetch", 8, {"groups": [{"group_id": group, "topics": None}]}),
            client.request("delete_groups", 2, {"groups_names": [group]}),
        ]

    answers = assert_same_script(both_brokers, live)
    assert answers[0]["error_code"] == 0
    assert error_codes(answers[-1:]) == [0]


HEARTBEATS: dict[str, dict[str, Any]] = {
    "an empty group id": {"group_id": ""},
    "a blank group id": {"group_id": "  "},
    "no member id": {"member_id": ""},
    "no rebalance timeout": {"rebalance_timeout": -1},
    "no subscription": {"subscribed_topic_names": None},
    "no partitions": {"topic_partitions": None},
    "partitions already": {"topic_partitions": [{"topic_id": None, "partitions": [1]}]},
    "an empty instance id": {"instance_id": ""},
    "an empty rack": {"rack_id": ""},
    "an assignor that nobody has": {"server_assignor": "magic"},
    "an empty assignor": {"server_assignor": ""},
    "a regular expression that is none": {"subscribed_topic_names": None, "subscribed_topic_regex": "a["},
    "an empty regular expression": {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
    "an epoch of its own invention": {"member_epoch": 7},
    "an epoch below everything": {"member_epoch": -3},
    "leaving what was never joined": {"member_epoch": -1},
    "leaving as a static member without a name": {"member_epoch": -2},
}


@pytest.mark.parametrize("case", HEARTBEATS)
def test_heartbeats_that_are_refused(both_brokers: Brokers, group: str, case: str) -> None:
    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        request = {**heartbeat_request(group, MEMBER, 0, subscribed_topic_names=["a-topic"]), **HEARTBEATS[case]}
        return [client.request("consumer_group_heartbeat", 1, request)]

    assert_same_script(both_brokers, ask)


def test_epochs_that_are_not_the_members(both_brokers: Brokers, group: str) -> None:
    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        joined = beat(client, group, MEMBER, 0, subscribed_topic_names=["a-topic"])
        changed = beat(client, group, MEMBER, joined["member_epoch"], subscribed_topic_names=["another-topic"])
        epoch = changed["member_epoch"]
        return [
            joined,
            changed,
            beat(client, group, MEMBER, epoch + 5),
            beat(client, group, MEMBER, epoch - 1),
            beat(client, group, MEMBER, epoch - 1, topic_partitions=[]),
            beat(client, group, OTHER, epoch),
            beat(client, group, MEMBER, epoch),
            beat(client, group, MEMBER, 0, subscribed_topic_names=["a-topic"]),
        ]

    assert_same_script(both_brokers, ask)


def test_offsets_of_an_older_epoch(both_brokers: Brokers, group: str, new_topic: Topics) -> None:
    """They count where the member has had the partition since then (KIP-1251), in transactions as well."""
    kept, new = new_topic(), new_topic()
    requests = {
        "of what it has had": [(kept, 0, 5)],
        "of what it has got since": [(new, 0, 5)],
        "of both": [(kept, 0, 5), (new, 0, 5)],
        "of what nobody has": [(kept, 7, 5)],
    }

    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        await_transactions(client)
        create_topic(client, new)
        owned = {"topic_partitions": [{"topic_id": create_topic(client, kept), "partitions": [0]}]}
        await_assignable(client, group, kept)
        await_assignable(client, group, new)
        joined = beat(client, group, MEMBER, 0, subscribed_topic_names=[kept])
        epoch = joined["member_epoch"]
        moved = beat(client, group, MEMBER, epoch, subscribed_topic_names=[kept, new], **owned)
        assert (moved["error_code"], moved["member_epoch"] > epoch) == (0, True)
        producer = HandProducer(client, group).begun()
        answers = []
        for offsets in requests.values():
            answers.append(client.request("offset_commit", 9, commit_request(group, *offsets, member=joined)))
            producer.commit_offsets(group, *offsets, member_id=MEMBER, generation_id=epoch)
        older = {**joined, "member_epoch": epoch - 1}
        answers.append(client.request("offset_commit", 9, commit_request(group, (kept, 0, 5), member=older)))
        answers += producer.answers
        producer.ended(commit=False)
        beat(client, group, MEMBER, -1)
        return answers

    answers = assert_same_script(both_brokers, ask)
    stale, unknown, refused = 113, 3, 22
    assert error_codes(answers) == [0, stale, stale, stale, unknown, stale, 0, refused, refused, refused, unknown]


def test_static_members(both_brokers: Brokers, group: str) -> None:
    static = {"instance_id": "i-1", "subscribed_topic_names": ["a-topic"]}

    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        first = beat(client, group, MEMBER, 0, **static)
        return [
            first,
            beat(client, group, OTHER, 0, **static),
            beat(client, group, MEMBER, first["member_epoch"], instance_id="i-1"),
            beat(client, group, MEMBER, -2, instance_id="i-1"),
            beat(client, group, OTHER, 0, **static),
            beat(client, group, MEMBER, first["member_epoch"], instance_id="i-1"),
            client.request("consumer_group_describe", 1, {"group_ids": [group]}),
        ]

    assert_same_script(both_brokers, ask)


def test_two_protocols_in_one_group(both_brokers: Brokers, group: str) -> None:
    """A classic group of something else than consumers stays what it is."""

    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        fields = {"protocol_type": "connect", "protocols": [{"name": "range", "metadata": b""}]}
        refused = client.request("join_group", 9, join_request(group, **fields))
        client.request("join_group", 9, join_request(group, refused["member_id"], **fields))
        return [beat(client, group, MEMBER, 0, subscribed_topic_names=["a-topic"])]

    assert_same_script(both_brokers, ask)


def test_an_empty_group_takes_the_other_protocol(both_brokers: Brokers, group: str) -> None:
    def ask(client: RawClient) -> list[Message]:
        await_coordinator(client, group)
        joined = join_alone(client, group)
        left = {"group_id": group, "members": [{"member_id": joined["member_id"]}]}
        client.request("leave_group", 5, left)
        upgraded = beat(client, group, MEMBER, 0, subscribed_topic_names=["a-topic"])
        described = client.request("consumer_group_describe", 1, {"group_ids": [group]})
        beat(client, group, MEMBER, -1)
        again = join_alone(client, group)
        return [upgraded, described, again, client.request("describe_groups", 6, {"groups": [group]})]

    assert_same_script(both_brokers, ask)


def change(group: str, *operations: tuple[str, int, str | None]) -> Ask:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in operations]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    return Ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
CHANGES = {
    "set": ([(SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")], 0),
    "deleted": ([(SESSION, DELETE, None)], 0),
    "too short": ([(SESSION, SET, "5")], 40),
    "too long": ([(SESSION, SET, "500000")], 40),
    "no number": ([(SESSION, SET, "x")], 40),
    "too often": ([(HEARTBEAT, SET, "1")], 40),
    "too seldom": ([(HEARTBEAT, SET, "20000")], 40),
    "no such key": ([("no.such", SET, "1")], 40),
    "appended": ([(SESSION, APPEND, "6000")], 40),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changing_a_groups_configs(both_brokers: Brokers, group: str, case: str) -> None:
    operations, code = CHANGES[case]
    keys = {"resource_type": GROUP, "resource_name": group, "configuration_keys": [SESSION, HEARTBEAT]}
    described = Ask("describe_configs", 4, {"resources": [keys], "include_synonyms": True})
    assert_same(both_brokers, lambda: [change(group, *operations), described], [code, 0])


def test_configs_of_no_group(both_brokers: Brokers) -> None:
    nobody = {"resource_type": GROUP, "resource_name": "", "configuration_keys": None}
    asks = [change("", (SESSION, SET, "50000")), Ask("describe_configs", 4, {"resources": [nobody]})]
    assert_same(both_brokers, lambda: asks, [42, 42])


def test_groups_with_configs_are_listed(broker: BrokerProcess, group: str) -> None:
    def is_listed(client: RawClient) -> bool:
        listed = client.request("list_config_resources", 1, {"resource_types": [GROUP]})["config_resources"]
        return {"resource_name": group, "resource_type": GROUP} in listed

    with RawClient(broker.address) as client:
        client.request(*change(group, (SESSION, SET, "50000")))
        eventually(lambda: is_listed(client), "the group is listed")
        client.request(*change(group, (SESSION, DELETE, None)))
        eventually(lambda: not is_listed(client), "the group is not listed any more")


def test_a_group_gets_what_was_set_for_it(broker: BrokerProcess, group: str) -> None:
    with RawClient(broker.address) as client:
        await_coordinator(client, group)
        client.request(*change(group, (HEARTBEAT, SET, "7000")))
        epoch = beat(client, group, MEMBER, 0, subscribed_topic_names=["a-topic"])["member_epoch"]
        # Kafka answers a change as soon as the controller has it, and the coordinator hears of it a moment later.
        eventually(lambda: beat(client, group, MEMBER, epoch)["heartbeat_interval"] == 7_000, "it is told so")


@pytest.mark.parametrize("key", ["group.max.size", "offsets.retention.minutes", "group.consumer.session.timeout.ms"])
def test_the_brokers_own_keys_are_fixed(both_brokers: Brokers, key: str) -> None:
    resource = {
        "resource_type": 4,
        "resource_name": "1",
        "configs": [{"name": key, "config_operation": SET, "value": "50000"}],
    }
    ask = Ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": True})
    assert_same(both_brokers, lambda: [ask], [42])


def test_the_feature_is_advertised(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        answer = client.request("api_versions", 4, {"client_software_name": "a", "client_software_version": "1"})
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    assert finalized["group.version"] == 1
    assert answer["finalized_features_epoch"] >= 0
