"""Configs: Kafka's keys with their types, defaults, rules and words; what a broker and a topic are told.

`broker_config` holds the value that the rest of the broker reads; `topic_keys` and `broker_keys` are the tables;
`unserved_keys` says which of Kafka's keys are ignored or refused, and why.
"""

from oncelog.broker.config.broker_config import BrokerConfig, ConfigSource, Setting, check_dynamic_change
from oncelog.broker.config.broker_keys import BROKER_KEYS
from oncelog.broker.config.definition import ConfigKey, ConfigType, UpdateMode, render
from oncelog.broker.config.listeners import Endpoint
from oncelog.broker.config.schema import BrokerConfigSchema
from oncelog.broker.config.topic_keys import TOPIC_KEYS

__all__ = [
    "BROKER_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "BrokerConfigSchema",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "Endpoint",
    "Setting",
    "UpdateMode",
    "check_dynamic_change",
    "render",
]
