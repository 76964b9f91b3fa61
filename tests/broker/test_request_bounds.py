from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from oncelog.broker.request_bounds import (
    MAX_PLAIN_REQUEST_BYTES,
    NAMED_ONCE,
    Once,
    check_size,
    max_elements,
    name_once,
)
from oncelog.wire.api import SUPPORTED, ApiKey
from oncelog.wire.codec import MalformedMessage, Message
from oncelog.wire.primitives import MAX_REQUEST_ELEMENTS
from oncelog.wire.schema import Field, load_schema


def rules(rule: Once, fields: tuple[Field, ...]) -> Iterator[tuple[Once, Field]]:
    (field,) = (field for field in fields if field.name == rule.array)
    yield rule, field
    for inner in rule.inside:
        yield from rules(inner, field.fields)


@pytest.mark.parametrize("key", NAMED_ONCE, ids=lambda key: ApiKey(key).name)
def test_the_rules_are_about_fields_that_there_are(key: ApiKey) -> None:
    for top in NAMED_ONCE[key]:
        for rule, field in rules(top, load_schema(f"{key.schema_prefix}Request").fields):
            members = {member.name: member for member in field.fields}
            assert field.is_array
            assert set(rule.key) <= members.keys()
            assert all(members[array].is_array for array in rule.merged)
            assert bool(rule.key) == field.is_struct


JUDGED = {
    ApiKey.ALTER_CLIENT_QUOTAS: "of an entity the last counts",
    ApiKey.ALTER_CONFIGS: "INVALID_REQUEST for repeats",
    ApiKey.CREATE_PARTITIONS: "INVALID_REQUEST for repeats",
    ApiKey.CREATE_TOPICS: "INVALID_REQUEST for repeats",
    ApiKey.DELETE_TOPICS: "INVALID_REQUEST for repeats",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "INVALID_REQUEST for repeats",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "a set of names",
    ApiKey.FETCH: "of a partition the last counts",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "INVALID_REQUEST for repeats",
    ApiKey.LIST_CONFIG_RESOURCES: "a set of types",
    ApiKey.METADATA: "a set of names or ids",
    # A repeat costs no more than any other element here.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "names and ids become sets",
    ApiKey.JOIN_GROUP: "protocols in the member's order",
    ApiKey.OFFSET_COMMIT: "each is a record of its own, as in Kafka",
    ApiKey.PRODUCE: "each is a batch of its own",
    ApiKey.SYNC_GROUP: "one assignment for each member",
    ApiKey.TXN_OFFSET_COMMIT: "each is a record of its own, as in Kafka",
}


def test_every_api_that_takes_lists_either_has_a_rule_or_deals_with_repeats_itself() -> None:
    with_lists = {
        key for key in SUPPORTED if any(field.is_array for field in load_schema(f"{key.schema_prefix}Request").fields)
    }
    assert with_lists == NAMED_ONCE.keys() | JUDGED.keys()
    assert not NAMED_ONCE.keys() & JUDGED.keys()


def test_the_first_of_each_resource_is_left() -> None:
    body: Message = {
        "resources": [
            {"resource_type": 4, "resource_name": "0", "configuration_keys": ["a"]},
            {"resource_type": 2, "resource_name": "0", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "0", "configuration_keys": None},
        ]
    }
    first, second, _ = body["resources"]
    name_once(ApiKey.DESCRIBE_CONFIGS, body)
    assert body["resources"] == [first, second]


def test_the_partitions_of_a_topic_that_is_named_again_are_put_together() -> None:
    topics = [("orders", [0, 1, 0]), ("payments", [5]), ("orders", [2, 1]), ("orders", [])]
    body: Message = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics]}
    name_once(ApiKey.DESCRIBE_PRODUCERS, body)
    assert body["topics"] == [
        {"name": "orders", "partition_indexes": [0, 1, 2]},
        {"name": "payments", "partition_indexes": [5]},
    ]


def test_repeats_that_have_an_error_of_their_own_are_left_to_the_handler() -> None:
    partition = {"partition_index": 0, "timestamp": -1}
    body: Message = {"topics": [{"name": "orders", "partitions": [partition]} for _ in range(2)]}
    name_once(ApiKey.LIST_OFFSETS, body)
    assert body["topics"] == [{"name": "orders", "partitions": [partition, partition]}]


def test_a_group_whose_offsets_are_asked_for_again() -> None:
    everything = {"group_id": "g", "topics": None}
    topic = {"name": "", "topic_id": UUID(int=1), "partition_indexes": [0, 0]}
    other = {"name": "", "topic_id": UUID(int=2), "partition_indexes": [0]}
    some = {"group_id": "h", "topics": [topic, other, {**topic, "partition_indexes": [1]}]}
    body: Message = {"topics": [], "groups": [everything, some, {"group_id": "g", "topics": [topic]}]}
    name_once(ApiKey.OFFSET_FETCH, body)
    assert [group["group_id"] for group in body["groups"]] == ["g", "h"]
    assert body["groups"][0]["topics"] is None
    assert [each["partition_indexes"] for each in body["groups"][1]["topics"]] == [[0, 1], [0]]


def test_markers_of_one_outcome_are_put_together() -> None:
    def marker(epoch: int, *indexes: int) -> Message:
        return {
            "producer_id": 1,
            "producer_epoch": epoch,
            "coordinator_epoch": 0,
            "transaction_result": True,
            "transaction_version": 2,
            "topics": [{"name": "orders", "partition_indexes": list(indexes)}],
        }

    body: Message = {"markers": [marker(0, 0, 0), marker(1, 0), marker(0, 0, 1)]}
    name_once(ApiKey.WRITE_TXN_MARKERS, body)
    assert body["markers"] == [marker(0, 0, 1), marker(1, 0)]


def test_what_names_nothing_is_left_alone() -> None:
    body: Message = {"topics": None, "group_id": "g", "groups": []}
    name_once(ApiKey.OFFSET_FETCH, body)
    assert body == {"topics": None, "group_id": "g", "groups": []}
    name_once(ApiKey.HEARTBEAT, body)


def test_how_large_a_request_without_records_may_be() -> None:
    check_size(ApiKey.METADATA, MAX_PLAIN_REQUEST_BYTES)
    check_size(ApiKey.PRODUCE, 100 << 20)
    with pytest.raises(MalformedMessage, match="without records"):
        check_size(ApiKey.METADATA, MAX_PLAIN_REQUEST_BYTES + 1)


def test_filters_may_have_fewer_elements_than_names() -> None:
    assert max_elements(ApiKey.LIST_GROUPS) < max_elements(ApiKey.METADATA) == MAX_REQUEST_ELEMENTS
