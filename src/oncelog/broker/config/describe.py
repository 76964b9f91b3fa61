"""Configs as they are shown: every key with its value, where the value comes from, and what it overrides."""

from __future__ import annotations

from oncelog.broker.config.broker_config import BrokerConfig, ConfigSource, Setting, Texts
from oncelog.broker.config.broker_keys import BROKER_KEYS
from oncelog.broker.config.definition import ConfigKey, UpdateMode, Value, render
from oncelog.broker.config.group_keys import GROUP_KEYS
from oncelog.broker.config.kept_keys import KEPT_KEYS, LISTENER_PREFIX, find_key
from oncelog.broker.config.topic_keys import TOPIC_KEYS
from oncelog.broker.config.unserved_keys import IGNORED_KEYS
from oncelog.named_tuple import NamedTuple

IGNORED = "Has no meaning in this broker."
_TABLES = {**BROKER_KEYS, **KEPT_KEYS}


class ConfigEntry(NamedTuple):
    key: ConfigKey
    text: str | None
    read_only: bool
    settings: list[Setting]
    """Every level that sets it, the winning one first; Kafka calls them synonyms."""

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def source(self) -> ConfigSource:
        return self.settings[0].source if self.settings else ConfigSource.DEFAULT_CONFIG


def describe_topic_configs(config: BrokerConfig, topic_texts: Texts) -> list[ConfigEntry]:
    entries = []
    values = config.stored_topic_values(topic_texts)
    for name, key in TOPIC_KEYS.items():
        if key.internal and name not in topic_texts:
            continue
        text = _text(values[name])
        settings = config.settings(key.synonyms[0].name) if key.synonyms else []
        if name in topic_texts:
            settings.insert(0, Setting(ConfigSource.TOPIC_CONFIG, name, text or ""))
        entries.append(ConfigEntry(key, text, False, settings))
    return entries


def describe_group_configs(config: BrokerConfig, group_texts: Texts) -> list[ConfigEntry]:
    """A group need not exist: what is set for it holds once it does. Keys that only other brokers know are left out."""
    known = {name: text for name, text in group_texts.items() if name in GROUP_KEYS}
    entries = []
    for name, key in GROUP_KEYS.items():
        settings = config.settings(key.synonyms[0].name)
        if name in known:
            settings.insert(0, Setting(ConfigSource.GROUP_CONFIG, name, known[name]))
        entries.append(ConfigEntry(key, settings[0].text, False, settings))
    return entries


def describe_broker_configs(config: BrokerConfig) -> list[ConfigEntry]:
    """What is served and what is kept; what nobody reads, as far as it was set at the start."""
    described = [_broker_entry(config, key) for key in (*BROKER_KEYS.values(), *KEPT_KEYS.values())]
    shown = [entry for entry in described if entry.settings or not entry.key.internal]
    listeners = {name: find_key(name) for name in (*config.dynamic_default, *config.dynamic) if name not in _TABLES}
    ignored = {
        name: ConfigKey(name, IGNORED_KEYS[name], None, IGNORED) for name in config.static if name in IGNORED_KEYS
    }
    return [
        *shown,
        *(_broker_entry(config, key) for key in listeners.values() if key is not None),
        *(ConfigEntry(key, config.static[name], True, config.settings(name)) for name, key in ignored.items()),
    ]


def describe_all_brokers_configs(config: BrokerConfig) -> list[ConfigEntry]:
    """Only what was set for all brokers while they ran."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    found = ((find_key(name), name, text) for name, text in config.dynamic_default.items())
    return [
        ConfigEntry(key, text, _is_read_only(key), [Setting(source, name, text)])
        for key, name, text in found
        if key is not None
    ]


def _broker_entry(config: BrokerConfig, key: ConfigKey) -> ConfigEntry:
    return ConfigEntry(key, _text(config.values.get(key.name)), _is_read_only(key), config.settings(key.name))


def _is_read_only(key: ConfigKey) -> bool:
    """Kafka calls a listener's keys read-only, though they may change."""
    return key.update_mode is UpdateMode.READ_ONLY or key.name.startswith(LISTENER_PREFIX)


def _text(value: Value | None) -> str | None:
    return None if value is None else render(value)
