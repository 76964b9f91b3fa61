"""The controller's view of the keys: which are lists, what they default to, which changes may be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncelog.broker.config.broker_config import BrokerConfig, check_dynamic_change
from oncelog.broker.config.definition import ConfigKey, ConfigType
from oncelog.broker.config.group_keys import GROUP_KEYS
from oncelog.broker.config.kept_keys import find_key
from oncelog.broker.config.topic_keys import TOPIC_KEYS
from oncelog.controller.config_schema import NOTHING_PLANNED
from oncelog.controller.configs import ALL_BROKERS
from oncelog.controller.state import ConfigResource, ResourceType

_TABLES = {ResourceType.TOPIC: TOPIC_KEYS, ResourceType.GROUP: GROUP_KEYS}
_LAG_DEFAULTS = frozenset({"log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"})
"""Defaults that must fit what topics say themselves."""


class BrokerConfigSchema:
    """Implements `oncelog.controller.config_schema.ConfigSchema` over the config that is current when asked."""

    def __init__(
        self, current: Callable[[], BrokerConfig], topics: Callable[[], Iterable[Mapping[str, str]]] = tuple
    ) -> None:
        self._current = current
        self._topics = topics

    def is_list(self, resource_type: ResourceType, name: str) -> bool:
        key = self._key(resource_type, name)
        return key is not None and key.type is ConfigType.LIST

    def default(self, resource_type: ResourceType, name: str) -> str | None:
        key = self._key(resource_type, name)
        return None if key is None else key.default

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        changed: frozenset[str],
        planned: Mapping[ConfigResource, Mapping[str, str]] = NOTHING_PLANNED,
    ) -> None:
        config = self._current()
        if resource.type is ResourceType.TOPIC:
            config.topic_values(configs)
        elif resource.type is ResourceType.GROUP:
            config.group_values(configs)
        elif resource.name == ALL_BROKERS:
            own = next((texts for other, texts in planned.items() if other.type is ResourceType.BROKER), config.dynamic)
            self._check_broker(config, configs, own, changed)
        else:
            default = planned.get(ConfigResource(ResourceType.BROKER, ALL_BROKERS), config.dynamic_default)
            self._check_broker(config, default, configs, changed)

    def _check_broker(
        self, config: BrokerConfig, default: Mapping[str, str], own: Mapping[str, str], changed: frozenset[str]
    ) -> None:
        check_dynamic_change(config, default, own, changed)
        if changed & _LAG_DEFAULTS:
            after = config.with_dynamic(default, own)
            for texts in self._topics():
                after.topic_values(texts)

    def _key(self, resource_type: ResourceType, name: str) -> ConfigKey | None:
        if resource_type is ResourceType.BROKER:
            return find_key(name)
        return _TABLES.get(resource_type, {}).get(name)
