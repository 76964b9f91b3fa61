"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, as clients see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.handlers.conftest import Asking, open_broker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


def describe(ask: Asking, resource_type: int, name: str, *keys: str, version: int = 4) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": list(keys) or None}
    answer = ask("describe_configs", version, resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = answer["results"]
    assert result["error_code"] == 0, result["error_message"]
    return {config["name"]: config for config in result["configs"]}


def settings(config: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(synonym["name"], synonym["value"], synonym["source"]) for synonym in config["synonyms"]]


def alter(
    ask: Asking, resource_type: int, name: str, *changes: tuple[str, int, str | None], **options: bool
) -> tuple[int, str]:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    (result,) = ask("incremental_alter_configs", 1, resources=[resource], **options)["responses"]
    return result["error_code"], result["error_message"]


def test_a_topic_shows_every_key_of_kafka(ask: Asking) -> None:
    ask.create("orders", cleanup_policy="compact, delete", retention_ms=" 5 ")
    configs = describe(ask, TOPIC, "orders")
    assert len(configs) == 33
    assert all(config["documentation"] and not config["read_only"] for config in configs.values())
    policy, retention, segment = configs["cleanup.policy"], configs["retention.ms"], configs["segment.bytes"]
    assert (policy["value"], policy["config_source"], policy["config_type"]) == ("compact,delete", 1, 7)
    assert settings(policy) == [("cleanup.policy", "compact,delete", 1), ("log.cleanup.policy", "delete", 5)]
    assert (retention["value"], settings(retention)) == ("5", [("retention.ms", "5", 1)])
    assert (segment["value"], segment["config_source"]) == ("1073741824", 5)
    assert settings(segment) == [("log.segment.bytes", "1073741824", 5)]


@pytest.mark.parametrize("version", range(1, 5))
def test_only_the_keys_asked_for(ask: Asking, version: int) -> None:
    ask.create("orders")
    configs = describe(ask, TOPIC, "orders", "retention.ms", "nope", version=version)
    assert list(configs) == ["retention.ms"]
    assert configs["retention.ms"]["config_type"] == (5 if version >= 3 else 0)


def test_an_internal_key_shows_once_it_is_set(ask: Asking) -> None:
    ask.create("orders", internal_segment_bytes="1000")
    assert describe(ask, TOPIC, "orders")["internal.segment.bytes"]["value"] == "1000"


def test_words_only_for_who_asks(ask: Asking) -> None:
    ask.create("orders")
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configuration_keys": ["retention.ms"]}
    (result,) = ask("describe_configs", 4, resources=[resource])["results"]
    assert result["configs"][0]["documentation"] is None
    assert result["configs"][0]["synonyms"] == []


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "words"),
    [
        (TOPIC, "nope", 3, "The topic 'nope' does not exist."),
        (TOPIC, "bad name", 17, "Topic name is invalid"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (8, "1", 42, "not served here"),
        (7, "x", 42, "not served here"),
    ],
)
def test_what_cannot_be_described(ask: Asking, resource_type: int, name: str, code: int, words: str) -> None:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    (result,) = ask("describe_configs", 4, resources=[resource])["results"]
    assert result["error_code"] == code
    assert words in result["error_message"]


def test_a_broker_shows_what_it_serves(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path, num_partitions="3", log_retention_hours="5"))
    configs = describe(ask, BROKER, "1")
    assert (configs["num.partitions"]["value"], configs["num.partitions"]["read_only"]) == ("3", True)
    assert settings(configs["num.partitions"]) == [("num.partitions", "3", 4), ("num.partitions", "1", 5)]
    assert (configs["log.retention.ms"]["value"], configs["log.retention.ms"]["read_only"]) == (None, False)
    assert configs["log.retention.ms"]["config_source"] == 5
    assert configs["log.retention.hours"]["config_source"] == 4


def test_a_changed_topic_config_reaches_its_logs(ask: Asking) -> None:
    ask.create("orders", 2)
    assert alter(ask, TOPIC, "orders", ("retention.ms", SET, "7")) == (0, None)
    assert [ask.broker.partition("orders", index).config.retention_ms for index in (0, 1)] == [7, 7]
    assert alter(ask, TOPIC, "orders", ("retention.ms", DELETE, None)) == (0, None)
    assert ask.broker.partition("orders", 0).config.retention_ms == 604_800_000
    assert alter(ask, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert ask.broker.partition("orders", 0).config.cleanup_policy == {"compact", "delete"}


def test_validation_alone_changes_nothing(ask: Asking) -> None:
    ask.create("orders")
    assert alter(ask, TOPIC, "orders", ("retention.ms", SET, "7"), validate_only=True) == (0, None)
    assert alter(ask, TOPIC, "orders", ("retention.ms", SET, "x"), validate_only=True)[0] == 40
    assert ask.broker.partition("orders", 0).config.retention_ms == 604_800_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("nope", SET, "1")], "Unknown topic config name: nope"),
        ([("remote.storage.enable", SET, "true")], "Tiered Storage functionality is disabled in the broker."),
        (
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_topic_configs_that_are_refused(ask: Asking, changes: list[tuple[str, int, str]], words: str) -> None:
    ask.create("orders")
    code, message = alter(ask, TOPIC, "orders", *changes)
    assert code == 40
    assert message.startswith(words)


def test_broker_configs_change_while_it_runs(ask: Asking, tmp_path: Path) -> None:
    ask.create("orders")
    log = ask.broker.partition("orders", 0)
    assert alter(ask, BROKER, "", ("log.retention.ms", SET, "2000")) == (0, None)
    assert log.config.retention_ms == 2000
    assert alter(ask, BROKER, "1", ("log.retention.ms", SET, "1000")) == (0, None)
    assert log.config.retention_ms == 1000
    retention = describe(ask, TOPIC, "orders")["retention.ms"]
    assert (retention["value"], retention["config_source"]) == ("1000", 2)
    assert settings(retention) == [
        ("log.retention.ms", "1000", 2),
        ("log.retention.ms", "2000", 3),
        ("log.retention.hours", "168", 5),
    ]
    (for_all,) = describe(ask, BROKER, "").values()
    assert (for_all["name"], for_all["value"], for_all["config_source"]) == ("log.retention.ms", "2000", 3)
    again = open_broker(tmp_path)
    assert again.partition("orders", 0).config.retention_ms == 1000
    assert alter(ask, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, None)
    assert log.config.retention_ms == 2000


def test_secrets_are_kept_and_never_told(ask: Asking, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in an answer, not in the log; a broker that is started again has them still."""
    names = ("sasl.jaas.config", "listener.name.sasl_ssl.ssl.keystore.password")
    for name in names:
        assert alter(ask, BROKER, "1", (name, SET, "hush")) == (0, None)
    assert alter(ask, BROKER, "1", ("max.connections.per.ip", SET, "5")) == (0, None)
    described = describe(ask, BROKER, "1", *names)
    assert [(one["value"], one["is_sensitive"], settings(one)) for one in described.values()] == [
        (None, True, [(name, None, 2)]) for name in names
    ]
    again = open_broker(tmp_path)
    assert [again.config.dynamic[name] for name in names] == ["hush", "hush"]
    assert "no effect here: max.connections.per.ip" in caplog.text, "a limit that nobody keeps is no secret"
    assert "hush" not in caplog.text
    assert "hush" not in repr(again.config)


@pytest.mark.parametrize(
    ("name", "change", "code", "words"),
    [
        ("1", ("num.partitions", SET, "5"), 42, "Cannot update these configs dynamically: [num.partitions]"),
        ("1", ("log.retention.ms", SET, "abc"), 42, "Invalid value abc for configuration log.retention.ms"),
        ("1", ("nonsense", SET, "5"), 40, "Unknown broker config name: nonsense"),
        ("2", ("log.retention.ms", SET, "5"), 42, "Unexpected broker id, expected 1, but received 2"),
        ("x", ("log.retention.ms", SET, "5"), 42, "Node id must be an integer, but it is: x"),
    ],
)
def test_broker_configs_that_are_refused(
    ask: Asking, name: str, change: tuple[str, int, str], code: int, words: str
) -> None:
    answer = alter(ask, BROKER, name, change)
    assert answer[0] == code
    assert answer[1].startswith(words)


def test_the_older_way_to_alter(ask: Asking) -> None:
    ask.create("orders", retention_ms="5", segment_ms="6")
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": [{"name": "retention.ms", "value": "8"}]}
    assert ask("alter_configs", 2, resources=[resource])["responses"][0]["error_code"] == 0
    config = ask.broker.partition("orders", 0).config
    assert (config.retention_ms, config.segment_ms) == (8, 604_800_000)


def test_listing_what_has_configs(ask: Asking) -> None:
    ask.create("orders")
    assert ask("list_config_resources", 0)["config_resources"] == []
    broker = {"resource_name": "1", "resource_type": BROKER}
    topic = {"resource_name": "orders", "resource_type": TOPIC}
    assert ask("list_config_resources", 1, resource_types=[])["config_resources"] == [broker, topic]
    assert ask("list_config_resources", 1, resource_types=[TOPIC, 16])["config_resources"] == [topic]
    assert ask("list_config_resources", 1, resource_types=[7])["error_code"] == 35
