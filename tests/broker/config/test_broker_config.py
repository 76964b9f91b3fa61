from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oncelog.broker.config import BrokerConfig, ConfigSource, Endpoint, Setting, check_dynamic_change
from oncelog.broker.config.describe import describe_broker_configs
from oncelog.errors import InvalidConfig, InvalidRequest

HOUR_MS = 3_600_000


def config_of(**texts: str) -> BrokerConfig:
    return BrokerConfig.from_settings({name.replace("_", "."): text for name, text in texts.items()})


def test_without_a_word_from_anyone() -> None:
    config = BrokerConfig.from_sources(None, {})
    assert (config.node_id, config.listen_host, config.listen_port) == (1, "127.0.0.1", 9092)
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable
    assert config.advertised is None
    assert config.metrics_port is None
    assert config.log_config().retention_ms == 168 * HOUR_MS


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.dirs=/data\n")
    config = BrokerConfig.from_sources(str(file), {"num.partitions": "5"})
    assert (config.num_partitions, config.log_dir) == (5, "/data")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        BrokerConfig.from_sources(str(tmp_path / "missing"), {})


def test_a_kraft_file_runs_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.from_settings(
            {
                "process.roles": "broker,controller",
                "node.id": "7",
                "controller.quorum.voters": "7@localhost:9093",
                "listeners": "EXTERNAL://:9192,CONTROLLER://:9093",
                "advertised.listeners": "EXTERNAL://broker.example:19092",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT",
                "num.io.threads": "8",
            }
        )
    assert (config.node_id, config.listen_host, config.listen_port) == (7, "0.0.0.0", 9192)
    assert config.advertised == Endpoint("broker.example", 19092)
    assert "process.roles" in caplog.text
    assert "num.io.threads" in caplog.text


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"num.partition": "3"}, r"did you mean num\.partitions\?"),
        ({"num.partitions": "0"}, "Value must be at least 1"),
        ({"node.id": "-1"}, "Value must be at least 0"),
        ({"log.retention.ms": "0"}, "unlimited"),
        ({"log.dirs": "/a,/b"}, "several directories"),
        ({"listeners": "SSL://:9093"}, "asks for SSL"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT2://:2"}, "one listener"),
        ({"listeners": "nonsense"}, "is not a listener"),
        ({"listeners": "host:70000"}, r"port 70000 is out of range \(0 to 65535\)"),
        ({"advertised.listeners": "0.0.0.0:9092"}, "address that they can reach"),
        ({"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}, "conflict"),
    ],
)
def test_contradictions_are_refused(texts: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        BrokerConfig.from_settings(texts)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("localhost:9092", Endpoint("localhost", 9092)),
        ("PLAINTEXT://10.0.0.1:0", Endpoint("10.0.0.1", 0)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        (":9092", Endpoint("0.0.0.0", 9092)),
    ],
)
def test_listeners_as_people_write_them(text: str, endpoint: Endpoint) -> None:
    config = config_of(listeners=text)
    assert Endpoint(config.listen_host, config.listen_port) == endpoint


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert BrokerConfig.from_settings({"broker.id": "4"}).node_id == 4
    assert BrokerConfig.from_settings({"broker.id": "4", "node.id": "5"}).node_id == 5


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_the_finest_unit_wins(texts: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.from_settings(texts).log_config().retention_ms == retention_ms


def test_flush_ms_falls_back_to_the_scheduler() -> None:
    assert config_of(log_flush_scheduler_interval_ms="50").log_config().flush_ms == 50
    both = config_of(log_flush_scheduler_interval_ms="50", log_flush_interval_ms="20")
    assert both.log_config().flush_ms == 20


def test_a_topic_wins_over_the_broker() -> None:
    config = config_of(log_retention_ms="5", message_max_bytes="6")
    log = config.log_config({"retention.ms": "7"})
    assert (log.retention_ms, log.max_message_bytes) == (7, 6)


def test_levels_and_their_order() -> None:
    config = config_of(log_retention_ms="1").with_dynamic({"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert config.settings("log.retention.ms") == [
        Setting(ConfigSource.DYNAMIC_BROKER_CONFIG, "log.retention.ms", "3"),
        Setting(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, "log.retention.ms", "2"),
        Setting(ConfigSource.STATIC_BROKER_CONFIG, "log.retention.ms", "1"),
        Setting(ConfigSource.DEFAULT_CONFIG, "log.retention.hours", "168"),
    ]
    assert config.log_config().retention_ms == 3
    assert config.with_dynamic({"log.retention.ms": "2"}, {}).log_config().retention_ms == 2
    assert config.with_dynamic({}, {}).log_config().retention_ms == 1


def test_a_coarser_synonym_is_not_shown_instead_of_the_key() -> None:
    assert config_of(log_retention_hours="5").settings("log.retention.ms") == []


def test_a_change_keeps_where_the_broker_listens() -> None:
    config = BrokerConfig.from_settings(
        {
            "listeners": "X://:1,C://:2",
            "controller.listener.names": "C",
            "listener.security.protocol.map": "X:PLAINTEXT",
        }
    )
    assert config.with_dynamic({}, {"log.retention.ms": "3"}).listen_port == 1


def test_stored_settings_of_another_version_do_not_stop_the_start(caplog: pytest.LogCaptureFixture) -> None:
    config = config_of().with_dynamic({"of.a.later.version": "secret", "num.partitions": "4"}, {})
    assert config.num_partitions == 1
    assert "of.a.later.version" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("num.partitions", "5", InvalidRequest, r"Cannot update these configs dynamically: \[num\.partitions\]"),
        ("process.roles", "broker", InvalidRequest, r"Cannot update these configs dynamically: \[process\.roles\]"),
        ("ssl.keystore.location", "5", InvalidRequest, r"only per-listener using the listener prefix: \[ssl\."),
        ("num.io.threads", "17", InvalidRequest, "not be greater than double the current value 8"),
        ("num.io.threads", "3", InvalidRequest, "at least half the current value 8"),
        ("listeners", "PLAINTEXT://:1", InvalidRequest, "until it is started with another"),
        ("max.connections", "0", InvalidRequest, r"Invalid max\.connections 0"),
        ("listener.name.plaintext.no.such", "5", InvalidConfig, "Unknown broker config name"),
        ("listener.name.plaintext.num.partitions", "5", InvalidConfig, "Unknown broker config name"),
        ("nonsense", "5", InvalidConfig, "Unknown broker config name: nonsense"),
        ("log.retention.ms", "abc", InvalidRequest, "Invalid value abc for configuration log.retention.ms"),
        ("message.max.bytes", "-1", InvalidRequest, "Value must be at least 0"),
    ],
)
def test_changes_that_are_refused(name: str, text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_dynamic_change(config_of(), {}, {name: text}, frozenset({name}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.retention.ms", "5"),
        ("num.io.threads", "16"),
        ("sasl.jaas.config", "secret"),
        ("listener.name.plaintext.ssl.keystore.password", "secret"),
        ("listener.name.plaintext.scram-sha-256.sasl.jaas.config", "secret"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
    ],
)
def test_changes_that_are_allowed(name: str, text: str) -> None:
    check_dynamic_change(config_of(), {}, {name: text}, frozenset({name}))


@pytest.mark.parametrize("name", ["sasl.kerberos.service.name", "listener.name.plaintext.ssl.keystore.location"])
def test_what_is_one_brokers_own_is_not_set_for_all(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"at default cluster level, broker id must be specified: \["):
        check_dynamic_change(config_of(), {name: "x"}, {}, frozenset({name}))
    check_dynamic_change(config_of(), {"listener.name.x.max.connections": "5"}, {}, frozenset({name}) - {name})


def test_ignored_settings_of_the_start_are_described() -> None:
    config = BrokerConfig.from_settings({"num.io.threads": "4", "process.roles": "broker", "ssl.client.auth": "none"})
    entries = {entry.name: entry for entry in describe_broker_configs(config)}
    assert [(one.source, one.text) for one in entries["num.io.threads"].settings] == [
        (ConfigSource.STATIC_BROKER_CONFIG, "4"),
        (ConfigSource.DEFAULT_CONFIG, "8"),
    ]
    assert (entries["process.roles"].text, entries["process.roles"].source) == (
        "broker", ConfigSource.STATIC_BROKER_CONFIG
    )  # fmt: skip
    assert entries["process.roles"].read_only
