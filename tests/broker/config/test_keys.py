"""Our tables against Apache Kafka's: `kafka_4_3_1_keys.json` was printed by Kafka's own ConfigDefs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oncelog.broker.config import BROKER_KEYS, TOPIC_KEYS, UpdateMode
from oncelog.broker.config.kept_keys import KEPT_KEYS
from oncelog.broker.config.unserved_keys import IGNORED_KEYS, REFUSED_PREFIXES, is_ignored
from oncelog.errors import InvalidConfig

KAFKA = json.loads((Path(__file__).parent / "kafka_4_3_1_keys.json").read_text())
OURS_ALONE = {"metrics.port", "oncelog.transaction.version"}
OTHER_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "members are few, and somebody waits for the first one",
    "node.id": "a number to start with, where Kafka wants to be told",
    "listeners": "this machine only, where Kafka listens everywhere",
    "log.dir": "a folder that outlives a reboot",
    "offsets.topic.replication.factor": "one node is all there is",
    "transaction.state.log.min.isr": "one node is all there is",
    "transaction.state.log.replication.factor": "one node is all there is",
}
OTHER_TYPES = {"log.dir": "one directory", "log.dirs": "one directory"}


def test_every_topic_key_of_kafka_is_known_with_its_type_and_default() -> None:
    ours = {name: [key.type.name, key.default] for name, key in TOPIC_KEYS.items()}
    assert ours == KAFKA["topic"]


def test_defaults_satisfy_their_own_rules() -> None:
    for key in [*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *KEPT_KEYS.values()]:
        if key.default is not None:
            assert key.parse(key.default) == key.default_value


@pytest.mark.parametrize("name", sorted(BROKER_KEYS.keys() - OURS_ALONE))
def test_a_served_broker_key_is_kafkas(name: str) -> None:
    kafka_type, kafka_default = KAFKA["broker"][name]
    key = BROKER_KEYS[name]
    if name not in OTHER_TYPES:
        assert key.type.name == kafka_type
    if name not in OTHER_DEFAULTS:
        assert key.default == kafka_default


def test_what_kafka_lets_change_may_change_and_nothing_else() -> None:
    keys = {**BROKER_KEYS, **KEPT_KEYS}
    ours = {name for name, key in keys.items() if key.update_mode is not UpdateMode.READ_ONLY}
    assert ours == set(KAFKA["dynamic"])


@pytest.mark.parametrize("name", sorted(KEPT_KEYS.keys() & KAFKA["broker"].keys()))
def test_a_kept_key_is_kafkas(name: str) -> None:
    assert [KEPT_KEYS[name].type.name, KEPT_KEYS[name].default] == KAFKA["broker"][name]


def test_ignored_keys_have_kafkas_types() -> None:
    assert {name: kind.name for name, kind in IGNORED_KEYS.items()} == {
        name: KAFKA["broker"][name][0] for name in IGNORED_KEYS
    }


def test_every_broker_key_of_kafka_is_served_ignored_or_refused() -> None:
    left_over = {
        name
        for name in KAFKA["broker"]
        if name not in BROKER_KEYS
        and name not in IGNORED_KEYS
        and name not in KEPT_KEYS
        and name != "broker.id"
        and not any(name.startswith(prefix) for prefix in REFUSED_PREFIXES)
    }
    assert left_over == set()


def test_no_key_is_in_two_groups() -> None:
    assert not BROKER_KEYS.keys() & IGNORED_KEYS.keys()
    assert not KEPT_KEYS.keys() & (BROKER_KEYS.keys() | IGNORED_KEYS.keys())
    for name in BROKER_KEYS.keys() | IGNORED_KEYS.keys():
        assert not any(name.startswith(prefix) for prefix in REFUSED_PREFIXES), name


@pytest.mark.parametrize(
    "name", ["ssl.keystore.location", "sasl.enabled.mechanisms", "authorizer.class.name", "max.connections.per.ip"]
)
def test_who_asks_for_protection_is_not_served_without(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name}=x cannot be honoured"):
        is_ignored(name, "x")


def test_a_value_that_asks_for_nothing_is_ignored() -> None:
    assert is_ignored("security.inter.broker.protocol", "PLAINTEXT")
    with pytest.raises(InvalidConfig):
        is_ignored("security.inter.broker.protocol", "SSL")


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match=r"num\.partition; did you mean num\.partitions\?"):
        is_ignored("num.partition", "3")
    with pytest.raises(InvalidConfig, match=r"Unknown broker config name: zzz$"):
        is_ignored("zzz", "3")
