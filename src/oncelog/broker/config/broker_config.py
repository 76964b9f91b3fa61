"""`BrokerConfig`: everything a broker was told, typed and checked once, as one frozen value.

Owns the levels a value may come from and their order: set for this broker while it ran, set for all brokers while they
ran, given at the start, Kafka's default. A change makes a new `BrokerConfig`; who holds the old one sees no change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from oncelog.broker.config.broker_keys import BROKER_KEYS
from oncelog.broker.config.definition import ConfigKey, ConfigType, UpdateMode, Value, render
from oncelog.broker.config.group_keys import check_group_values, group_values
from oncelog.broker.config.kept_keys import (
    KEPT_KEYS,
    LISTENER_PREFIX,
    METRIC_REPORTER,
    NEVER_ZERO,
    THREAD_COUNTS,
    base_name,
    find_key,
)
from oncelog.broker.config.listeners import Endpoint, parse_advertised, parse_listeners
from oncelog.broker.config.properties import parse_properties
from oncelog.broker.config.topic_keys import TOPIC_KEYS, check_compaction_lags, log_config, parse_topic_configs
from oncelog.broker.config.unserved_keys import is_ignored, unknown_broker_key
from oncelog.errors import InvalidConfig, InvalidRequest
from oncelog.log.config import LogConfig
from oncelog.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

Texts = Mapping[str, str]
NOTHING: Texts = MappingProxyType({})


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class Setting(NamedTuple):
    source: ConfigSource
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    node_id: int
    listen_host: str
    listen_port: int
    advertised: Endpoint | None
    log_dir: str
    broker_rack: str | None
    metrics_port: int | None
    auto_create_topics_enable: bool
    default_replication_factor: int
    delete_topic_enable: bool
    num_partitions: int
    max_request_partition_size_limit: int
    connections_max_idle_ms: int
    fetch_max_bytes: int
    max_connections: int
    max_incremental_fetch_session_cache_slots: int
    quota_window_num: int
    quota_window_size_seconds: int
    socket_request_max_bytes: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transaction_max_timeout_ms: int
    log_cleaner_backoff_ms: int
    log_cleaner_enable: bool
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_retention_check_interval_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    num_recovery_threads_per_data_dir: int
    static: Texts = field(repr=False)
    dynamic_default: Texts = field(repr=False)
    dynamic: Texts = field(repr=False)
    values: Mapping[str, Value | None] = field(repr=False)
    """The effective value of every broker key, served or kept."""

    @classmethod
    def from_sources(cls, config_file: str | None, overrides: Texts) -> BrokerConfig:
        """A properties file, if one is named, and settings that win over it. Raises InvalidConfig."""
        texts: dict[str, str] = {}
        if config_file is not None:
            try:
                with open(config_file, encoding="utf-8") as file:
                    texts.update(parse_properties(file.read()))
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidConfig(f"the config file {config_file} cannot be read: {error}") from error
        return cls.from_settings({**texts, **overrides})

    @classmethod
    def from_settings(cls, texts: Texts) -> BrokerConfig:
        if "broker.id" in texts:  # the name that node.id had before KRaft
            texts = {"node.id": texts["broker.id"], **{k: v for k, v in texts.items() if k != "broker.id"}}
        ignored = [name for name, text in texts.items() if name not in BROKER_KEYS and is_ignored(name, text)]
        if ignored:
            logger.warning("these settings have no meaning in this broker and are ignored: %s", ", ".join(ignored))
        listener = parse_listeners(_value(texts, "listeners"), texts)
        advertised = parse_advertised(_value(texts, "advertised.listeners"), texts)
        return _build(texts, NOTHING, NOTHING, listener, advertised)

    def with_dynamic(self, default: Texts, own: Texts) -> BrokerConfig:
        """The config after a change while the broker runs. Settings that this version does not serve are left out:
        they can only come from another version's metadata, and must not keep the broker from starting."""
        listener = Endpoint(self.listen_host, self.listen_port)
        return _build(self.static, _changeable(default), _changeable(own), listener, self.advertised)

    def log_config(self, topic_texts: Texts = NOTHING) -> LogConfig:
        """What a topic's logs are told: its own settings over this broker's defaults."""
        values = self.stored_topic_values(topic_texts)
        return log_config(values, self.producer_id_expiration_ms)

    def topic_values(self, topic_texts: Texts) -> dict[str, Value | None]:
        """The effective value of every topic key, if a topic may say this. Raises InvalidConfig."""
        values = self._merged(topic_texts)
        check_compaction_lags(values)
        return values

    def stored_topic_values(self, topic_texts: Texts) -> dict[str, Value | None]:
        """The same for what a topic has said already. This broker's defaults may have changed since: where they do not
        fit, they give way to the topic. Raises InvalidConfig."""
        values = self._merged(topic_texts)
        try:
            check_compaction_lags(values)
        except InvalidConfig as error:
            winner, loser = "min.compaction.lag.ms", "max.compaction.lag.ms"
            if winner not in topic_texts:
                winner, loser = loser, winner
            logger.warning("%s: the topic's own %s holds for both", error.message, winner)
            values[loser] = values[winner]
        return values

    def _merged(self, topic_texts: Texts) -> dict[str, Value | None]:
        said = parse_topic_configs(topic_texts)  # first: what is wrong should cost little
        return {**{name: self._topic_default(key) for name, key in TOPIC_KEYS.items()}, **said}

    def group_values(self, group_texts: Texts) -> dict[str, int]:
        """The effective value of every key that a group may set. Raises InvalidConfig."""
        return group_values(self.values, group_texts)

    def settings(self, name: str) -> list[Setting]:
        """Every level that says something about a broker key, the winning one first."""
        names = _SYNONYM_GROUPS.get(name, (name,))
        if name.startswith(LISTENER_PREFIX):
            names = (name, *_SYNONYM_GROUPS.get(base_name(name), (base_name(name),)))
        levels = (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
            (ConfigSource.DEFAULT_CONFIG, _DEFAULTS),
        )
        found = [Setting(source, one, texts[one]) for source, texts in levels for one in names if one in texts]
        # As Kafka: a level that sets only a synonym in a coarser unit is shown after the key itself, never instead.
        while found and found[0].name != name:
            found.pop(0)
        return found

    def _topic_default(self, key: ConfigKey) -> Value | None:
        for synonym in key.synonyms:
            value = self.values[synonym.name]
            if value is None:
                continue
            if synonym.factor != 1:
                assert isinstance(value, int)
                value = value * synonym.factor
            if key.name == "retention.ms" and isinstance(value, int) and value < 0:
                return -1  # any negative time means no limit
            return value
        return key.default_value


_KEYS: Mapping[str, ConfigKey] = {**BROKER_KEYS, **KEPT_KEYS}
_DEFAULTS: Texts = {key.name: key.default for key in _KEYS.values() if key.default is not None}
_SYNONYM_GROUPS: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(one.name for one in key.synonyms)
    for key in TOPIC_KEYS.values()
    if any(one.factor != 1 for one in key.synonyms)
    for synonym in key.synonyms
}
_TYPED_KEYS = [key for key in BROKER_KEYS.values() if key.field in {one.name for one in fields(BrokerConfig)}]


def _value(texts: Texts, name: str) -> Value | None:
    key = find_key(name)
    assert key is not None, f"{name} is served or kept"
    return key.parse(texts[name]) if name in texts else key.default_value


def _build(static: Texts, default: Texts, own: Texts, listener: Endpoint, advertised: Endpoint | None) -> BrokerConfig:
    texts = {**static, **default, **own}
    values = {name: _value(texts, name) for name in (*_KEYS, *default, *own)}
    typed: dict[str, Any] = {key.field: values[key.name] for key in _TYPED_KEYS}
    typed["log_dir"] = _one_directory(values)
    config = BrokerConfig(
        **typed,
        listen_host=listener.host,
        listen_port=listener.port,
        advertised=advertised,
        static=MappingProxyType(dict(static)),
        dynamic_default=MappingProxyType(dict(default)),
        dynamic=MappingProxyType(dict(own)),
        values=MappingProxyType(values),
    )
    check_group_values(values)
    config.topic_values(NOTHING)  # the defaults of topics must fit together as well
    return config


def _one_directory(values: Mapping[str, Value | None]) -> str:
    directory = str(values["log.dirs"] or values["log.dir"])
    if "," in directory:
        raise InvalidConfig(f"log.dirs={directory} names several directories; all data lives in one here")
    if not directory:
        raise InvalidConfig("log.dirs is empty; name the directory of the data")
    return directory


def _changeable(texts: Texts) -> dict[str, str]:
    chosen = {}
    for name, text in texts.items():
        if name == "listeners":
            continue  # only ever what was so already; with the next start it may not be
        key = find_key(name)
        if key is None or key.update_mode in (UpdateMode.READ_ONLY, UpdateMode.PER_LISTENER):
            logger.warning("the stored broker config %s is not served here and has no effect", name)
            continue
        chosen[name] = text
    return chosen


def check_dynamic_change(config: BrokerConfig, default: Texts, own: Texts, changed: frozenset[str]) -> None:
    """Whether brokers may be told this while they run. Raises InvalidRequest as Kafka does, in its order; InvalidConfig
    for a key that nobody knows (Kafka stores those for plugins to find; here no one would ever look)."""
    named = {name: _known(name) for name in sorted(changed)}
    _refuse("Cannot update these configs dynamically", named, UpdateMode.READ_ONLY)
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        named,
        UpdateMode.PER_LISTENER,
    )
    try:
        after = config.with_dynamic(default, own)
        _check_listeners(config, own if "listeners" in own else default)
    except InvalidConfig as error:
        raise InvalidRequest(error.message) from error
    for_all = {name: key for name, key in named.items() if default.get(name) != config.dynamic_default.get(name)}
    _refuse(
        "Cannot update these configs at default cluster level, broker id must be specified",
        for_all,
        UpdateMode.PER_BROKER,
    )
    for name in named:
        _check_step(config, after, name)


def _known(name: str) -> ConfigKey:
    key = find_key(name)
    if key is None and _is_kafkas(name):
        return ConfigKey(name, ConfigType.STRING, None, "")  # read-only, whether ignored or refused here
    if key is None:
        raise unknown_broker_key(name)
    return key


def _refuse(words: str, named: Mapping[str, ConfigKey], mode: UpdateMode) -> None:
    names = [name for name, key in named.items() if key.update_mode is mode]
    if names:
        raise InvalidRequest(f"{words}: [{', '.join(names)}]")


def _check_listeners(config: BrokerConfig, texts: Texts) -> None:
    wanted, now = _value(texts, "listeners"), config.values["listeners"]
    if "listeners" in texts and wanted != now:
        raise InvalidConfig(
            f"listeners={render(wanted or ())} cannot be honoured: this broker listens at "
            f"{render(now or ())} until it is started with another"
        )


def _check_step(config: BrokerConfig, after: BrokerConfig, name: str) -> None:
    """Rules between the value now and the next."""
    before, wanted = config.values.get(name), after.values.get(name)
    if name in NEVER_ZERO and wanted == 0:
        raise InvalidRequest(f"Invalid {name} 0")
    if name == "metric.reporters" and not set(wanted or ()) <= {METRIC_REPORTER}:  # type: ignore[arg-type]
        raise InvalidRequest(f"metric.reporters={render(wanted or ())}: there is no JVM here to load a class")
    if name in THREAD_COUNTS:
        assert isinstance(before, int)
        assert isinstance(wanted, int)
        failed = f"Dynamic thread count update validation failed for {name}={wanted}"
        if wanted > 2 * before:
            raise InvalidRequest(f"{failed}, value should not be greater than double the current value {before}")
        if wanted < max(1, before // 2):
            raise InvalidRequest(f"{failed}, value should be at least half the current value {before}")


def _is_kafkas(name: str) -> bool:
    """A key that Kafka has, whether ignored or refused here."""
    if name.startswith(LISTENER_PREFIX):
        return False
    try:
        return is_ignored(name, "")
    except InvalidConfig as error:
        return not error.message.startswith("Unknown broker config name")
