"""Plans for config changes. Codes and words are those of a running Kafka 4.3.1."""

from __future__ import annotations

import pytest

from oncelog.controller.configs import (
    ConfigChange,
    Operation,
    ResourceChange,
    alter_configs,
    incremental_alter_configs,
)
from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.controller.topics import NewTopic, create_topics
from tests.controller.support import CLUSTER, SCHEMA, apply, counting_ids

ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
SET, DELETE, APPEND, SUBTRACT = Operation


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    apply(state, create_topics(state, CLUSTER, SCHEMA, [NewTopic("orders")], counting_ids()))
    return state


def change(
    state: ControllerState, *changes: ConfigChange, resource: tuple[int, str] = (2, "orders")
) -> tuple[int, str]:
    outcome = incremental_alter_configs(state, 1, SCHEMA, [ResourceChange(*resource, changes)])
    apply(state, outcome)
    (error,) = outcome.response
    return (error.code, error.message) if error else (0, "")


def replace(state: ControllerState, **configs: str) -> tuple[int, str]:
    changes = [ConfigChange(name.replace("_", "."), SET, value) for name, value in configs.items()]
    outcome = alter_configs(state, 1, SCHEMA, [ResourceChange(2, "orders", changes)])
    apply(state, outcome)
    (error,) = outcome.response
    return (error.code, error.message) if error else (0, "")


def test_set_and_delete(state: ControllerState) -> None:
    assert change(state, ConfigChange("retention.ms", SET, "5")) == (0, "")
    assert state.configs(ORDERS) == {"retention.ms": "5"}
    assert change(state, ConfigChange("retention.ms", DELETE, None)) == (0, "")
    assert state.configs(ORDERS) == {}
    assert dict(state.configured_resources()) == {}
    assert change(state, ConfigChange("unknown", DELETE, None)) == (0, "")


def test_lists_grow_and_shrink_from_their_default(state: ControllerState) -> None:
    change(state, ConfigChange("cleanup.policy", APPEND, "compact"))
    assert state.configs(ORDERS) == {"cleanup.policy": "delete,compact"}
    change(state, ConfigChange("cleanup.policy", APPEND, "compact"))
    assert state.configs(ORDERS) == {"cleanup.policy": "delete,compact"}
    change(state, ConfigChange("cleanup.policy", SUBTRACT, "delete"))
    assert state.configs(ORDERS) == {"cleanup.policy": "compact"}
    change(state, ConfigChange("cleanup.policy", SUBTRACT, "compact"))
    assert state.configs(ORDERS) == {"cleanup.policy": ""}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([ConfigChange("retention.ms", SET, "x")], 40, "x is no number"),
        ([ConfigChange("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ([ConfigChange("nope", SET, "1")], 40, "Unknown topic config name: nope"),
        (
            [ConfigChange("retention.ms", APPEND, "1")],
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ([ConfigChange("nope", SUBTRACT, "1")], 40, "Can't SUBTRACT to key nope because its type is not LIST."),
        ([ConfigChange("retention.ms", 9, "1")], 42, "Unknown config operation 9 for retention.ms"),
        (
            [ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", SET, "2")],
            42,
            "Error due to duplicate config keys",
        ),
    ],
)
def test_refused_changes(state: ControllerState, changes: list[ConfigChange], code: int, words: str) -> None:
    assert change(state, *changes) == (code, words)
    assert state.configs(ORDERS) == {}


@pytest.mark.parametrize(
    ("resource", "code", "words"),
    [
        ((2, "nope"), 3, "The topic 'nope' does not exist."),
        ((2, ""), 42, "Default topic resources are not allowed."),
        ((2, "bad name"), 17, "Topic name is invalid: 'bad name' contains one or more characters"),
        ((4, "2"), 42, "Unexpected broker id, expected 1, but received 2"),
        ((4, "x"), 42, "Node id must be an integer, but it is: x"),
        ((8, "1"), 42, "Unknown resource type 8"),
        ((0, "1"), 42, "Unknown resource type 0"),
    ],
)
def test_refused_resources(state: ControllerState, resource: tuple[int, str], code: int, words: str) -> None:
    answer = change(state, ConfigChange("retention.ms", SET, "1"), resource=resource)
    assert answer[0] == code
    assert answer[1].startswith(words)


@pytest.mark.parametrize("name", ["", "1"])
def test_brokers_by_id_and_all_of_them(state: ControllerState, name: str) -> None:
    assert change(state, ConfigChange("retention.ms", SET, "1"), resource=(4, name)) == (0, "")
    assert state.configs(ConfigResource(ResourceType.BROKER, name)) == {"retention.ms": "1"}


def test_a_resource_twice_in_one_request(state: ControllerState) -> None:
    twice = [ResourceChange(2, "orders", [ConfigChange("retention.ms", SET, text)]) for text in "12"]
    outcome = incremental_alter_configs(state, 1, SCHEMA, twice)
    assert [error.message if error else "" for error in outcome.response] == [
        "Each resource must appear at most once."
    ] * 2
    assert outcome.records == []


def test_the_older_way_forgets_what_is_not_named(state: ControllerState) -> None:
    assert replace(state, retention_ms="5", cleanup_policy="compact") == (0, "")
    assert replace(state, retention_ms="6") == (0, "")
    assert state.configs(ORDERS) == {"retention.ms": "6"}
    assert replace(state, nope="1")[0] == 40
    assert state.configs(ORDERS) == {"retention.ms": "6"}
    assert replace(state) == (0, "")
    assert state.configs(ORDERS) == {}


def test_what_does_not_change_is_not_written(state: ControllerState) -> None:
    change(state, ConfigChange("retention.ms", SET, "5"))
    again = ResourceChange(2, "orders", [ConfigChange("retention.ms", SET, "5")])
    assert incremental_alter_configs(state, 1, SCHEMA, [again]).records == []
