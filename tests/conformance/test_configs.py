"""Configs: what is described, what may be changed, what is refused, and that a change takes effect."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from tests.support.batches import GZIP, LZ4, SNAPPY, ZSTD, batch_records, make_batch, read_batches
from tests.support.compare import Ask, assert_equal, assert_same, masked, run
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic as create_raw
from tests.support.requests import fetch, produce

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
UNSUPPORTED_VERSION = 35
INVALID_CONFIG = 40
INVALID_REQUEST = 42

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_SOURCE = 1


def describe(name: str, keys: list[str] | None = None, *, kind: int = TOPIC, version: int = 4) -> Ask:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return Ask("describe_configs", version, {"resources": [resource], "include_synonyms": True})


def change(name: str, *operations: tuple[str, int, str | None], kind: int = TOPIC, validate_only: bool = False) -> Ask:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in operations]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Ask("incremental_alter_configs", 1, {"resources": [resource], "validate_only": validate_only})


def replace(name: str, *pairs: tuple[str, str | None], kind: int = TOPIC, validate_only: bool = False) -> Ask:
    configs = [{"name": key, "value": value} for key, value in pairs]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Ask("alter_configs", 2, {"resources": [resource], "validate_only": validate_only})


def described(answer: Message) -> dict[str, Any]:
    (result,) = masked(answer)["results"]
    return {each["name"]: each for each in result["configs"]}


def create_everywhere(brokers: Brokers, name: str, configs: dict[str, str] | None = None) -> None:
    for broker in brokers.values():
        create_topic(broker, name, configs=configs)


def test_a_topics_configs_are_kafkas(both_brokers: Brokers, new_topic: Topics) -> None:
    """Every key with Kafka's name, default, type, source and synonyms."""
    name = new_topic()
    create_everywhere(both_brokers, name, {"retention.bytes": "123456789", "cleanup.policy": "compact,delete"})
    configs = {kind: described(run(broker, [describe(name)])[0]) for kind, broker in both_brokers.items()}
    for kind, entries in configs.items():
        assert entries["retention.bytes"]["value"] == "123456789", kind
        assert entries["retention.bytes"]["config_source"] == TOPIC_SOURCE, kind
    assert_equal(configs)


def test_a_new_topics_answer_lists_its_configs(both_brokers: Brokers, new_topic: Topics) -> None:
    name = new_topic()
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    lists = {}
    for kind, broker in both_brokers.items():
        (answer,) = run(broker, [Ask("create_topics", 7, {"topics": [topic], "timeout": 10_000})])
        entries = {each["name"]: each for each in answer["topics"][0]["configs"]}
        assert entries["cleanup.policy"]["value"] == "compact"
        lists[kind] = entries
    assert_equal(lists)


DESCRIPTIONS = {
    "chosen keys": (lambda name: describe(name, ["retention.ms", "cleanup.policy", "no.such.config"]), 0),
    "no keys": (lambda name: describe(name, []), 0),
    "an unknown topic": (lambda name: describe(f"{name}-unknown"), UNKNOWN_TOPIC_OR_PARTITION),
    "an invalid name": (lambda _: describe("in valid"), INVALID_TOPIC),
    "some of the broker's": (
        lambda _: describe(
            "1",
            ["num.partitions", "auto.create.topics.enable", "message.max.bytes", "log.retention.bytes"],
            kind=BROKER,
        ),
        0,
    ),
    "another broker": (lambda _: describe("9", kind=BROKER), INVALID_REQUEST),
    "a broker that is no number": (lambda _: describe("one", kind=BROKER), INVALID_REQUEST),
    "an unknown kind of resource": (lambda _: describe("1", kind=99), INVALID_REQUEST),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_describing(both_brokers: Brokers, new_topic: Topics, case: str) -> None:
    name = new_topic()
    create_everywhere(both_brokers, name)
    ask, code = DESCRIPTIONS[case]
    assert_same(both_brokers, lambda: [ask(name)], [code])


CHANGES: dict[str, tuple[Callable[[str], Ask], int]] = {
    "set": (lambda name: change(name, ("retention.ms", SET, "1000")), 0),
    "set several": (lambda name: change(name, ("retention.ms", SET, "1000"), ("segment.ms", SET, "2000")), 0),
    "delete": (lambda name: change(name, ("retention.bytes", DELETE, None)), 0),
    "delete what was not set": (lambda name: change(name, ("segment.ms", DELETE, None)), 0),
    "delete what does not exist": (lambda name: change(name, ("no.such.config", DELETE, None)), 0),
    "append to a list": (lambda name: change(name, ("cleanup.policy", APPEND, "compact")), 0),
    "append what is there": (lambda name: change(name, ("cleanup.policy", APPEND, "delete")), 0),
    "subtract from a list": (lambda name: change(name, ("cleanup.policy", SUBTRACT, "compact")), 0),
    "append to a number": (lambda name: change(name, ("retention.ms", APPEND, "1")), INVALID_CONFIG),
    "an unknown key": (lambda name: change(name, ("no.such.config", SET, "1")), INVALID_CONFIG),
    "a value of the wrong type": (lambda name: change(name, ("retention.ms", SET, "soon")), INVALID_CONFIG),
    "a value out of range": (lambda name: change(name, ("max.message.bytes", SET, "-1")), INVALID_CONFIG),
    "a word that is not a choice": (
        lambda name: change(name, ("message.timestamp.type", SET, "Never")),
        INVALID_CONFIG,
    ),
    "a policy that does not exist": (lambda name: change(name, ("cleanup.policy", SET, "burn")), INVALID_CONFIG),
    "no value": (lambda name: change(name, ("retention.ms", SET, None)), INVALID_REQUEST),
    "one key twice": (
        lambda name: change(name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        INVALID_REQUEST,
    ),
    "one bad among good": (
        lambda name: change(name, ("retention.bytes", SET, "1"), ("retention.ms", SET, "x")),
        INVALID_CONFIG,
    ),
    "an unknown topic": (
        lambda name: change(f"{name}-unknown", ("retention.ms", SET, "1")),
        UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "no name": (lambda _: change("", ("retention.ms", SET, "1")), INVALID_REQUEST),
    "validated only": (lambda name: change(name, ("retention.ms", SET, "5"), validate_only=True), 0),
    "a read-only broker key": (lambda _: change("1", ("log.dirs", SET, "/tmp"), kind=BROKER), INVALID_REQUEST),
    "another broker": (lambda _: change("9", ("log.retention.ms", SET, "1"), kind=BROKER), INVALID_REQUEST),
    "an unknown kind of resource": (lambda _: change("x", ("retention.ms", SET, "1"), kind=99), INVALID_REQUEST),
    "replace all": (lambda name: replace(name, ("retention.ms", "777")), 0),
    "replace by nothing": (replace, 0),
    "replace by an unknown key": (lambda name: replace(name, ("no.such.config", "1")), INVALID_CONFIG),
    "replace by no value": (lambda name: replace(name, ("retention.ms", None)), INVALID_REQUEST),
    "replace by a wrong type": (lambda name: replace(name, ("retention.ms", "soon")), INVALID_CONFIG),
    "replace on an unknown topic": (lambda name: replace(f"{name}-unknown"), UNKNOWN_TOPIC_OR_PARTITION),
    "replace validated only": (lambda name: replace(name, ("retention.ms", "5"), validate_only=True), 0),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changing(both_brokers: Brokers, new_topic: Topics, case: str) -> None:
    """The answer, and what the topic's own configs are afterwards."""
    name = new_topic()
    create_everywhere(both_brokers, name, {"retention.bytes": "5000", "segment.index.bytes": "4096"})
    ask, code = CHANGES[case]
    assert_same(both_brokers, lambda: [ask(name)], [code])

    def after() -> dict[str, Any]:
        return {kind: _own_configs(broker, name) for kind, broker in both_brokers.items()}

    with contextlib.suppress(AssertionError):  # a broker of Kafka's hears of it after its controller has answered
        eventually(lambda: len({str(sorted(each.items())) for each in after().values()}) == 1, "the same configs")
    assert_equal(after())


def _own_configs(broker: BrokerProcess, name: str) -> dict[str, str]:
    entries = described(run(broker, [describe(name)])[0]).values()
    return {each["name"]: each["value"] for each in entries if each["config_source"] == TOPIC_SOURCE}


def test_resources_are_listed(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    create_topic(broker, name)
    (listed, unknown) = run(
        broker,
        [Ask("list_config_resources", 1, {"resource_types": kinds}) for kinds in ([TOPIC, BROKER], [99])],
    )
    found = {(each["resource_type"], each["resource_name"]) for each in listed["config_resources"]}
    assert {(TOPIC, name), (BROKER, "1")} <= found
    assert unknown["error_code"] == UNSUPPORTED_VERSION


def test_a_limit_takes_effect(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    message_too_large = 10
    with RawClient(broker.address) as client:
        create_raw(client, name)
        assert produce(client, name, make_batch([bytes(5_000)]))["error_code"] == 0
        client.request(*change(name, ("max.message.bytes", SET, "1000")))
        _await_answer(client, name, bytes(5_000), message_too_large)
        client.request(*change(name, ("max.message.bytes", DELETE, None)))
        _await_answer(client, name, bytes(5_000), 0)


def _await_answer(client: RawClient, name: str, value: bytes, code: int) -> None:
    """Kafka answers a change before every part of it has heard of the change."""
    deadline = time.monotonic() + 60
    while produce(client, name, make_batch([value]))["error_code"] != code:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "codec"), [("gzip", GZIP), ("snappy", SNAPPY), ("lz4", LZ4), ("zstd", ZSTD)])
def test_a_topics_own_compression(broker: BrokerProcess, new_topic: Topics, name: str, codec: int) -> None:
    """`compression.type` other than `producer`: batches are stored in the topic's codec whatever arrives."""
    topic = new_topic()
    values = [b"squeeze me " * 100, b"and me", b""]
    with RawClient(broker.address) as client:
        create_raw(client, topic, configs={"compression.type": name})
        for turn, sent in enumerate((0, GZIP, codec)):
            batch = make_batch(values, codec=sent, producer_id=5, epoch=0, sequence=3 * turn)
            assert produce(client, topic, batch)["error_code"] == 0
        batches = list(read_batches(fetch(client, topic)["records"]))
    assert len(batches) == 3
    for batch in batches:
        assert (batch.codec, batch.crc_is_right, batch.producer_id) == (codec, True, 5)
        assert [record.value for record in batch_records(batch)] == values


def test_uncompressed_wins_over_the_producers_codec(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_raw(client, topic, configs={"compression.type": "uncompressed"})
        assert produce(client, topic, make_batch([b"x" * 500] * 3, codec=ZSTD))["error_code"] == 0
        (batch,) = read_batches(fetch(client, topic)["records"])
    assert batch.codec == 0
    assert [record.value for record in batch_records(batch)] == [b"x" * 500] * 3


def test_configs_through_a_client(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    create_topic(broker, name)
    admin = make_admin(broker)
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", "54321", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)

    def now() -> dict[str, ConfigEntry]:
        (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        entries: dict[str, ConfigEntry] = found.result(TIMEOUT_S)
        return entries

    # A broker of Kafka's hears of it after its controller has answered.
    eventually(lambda: now()["retention.ms"].value == "54321", "the changed value")
    entries = now()
    assert entries["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["segment.bytes"].is_default
