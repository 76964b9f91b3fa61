"""What the controller must know of configs to change them. The keys themselves are the broker's (`broker.config`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from oncelog.controller.state import ConfigResource, ResourceType

NOTHING_PLANNED: Final[Mapping[ConfigResource, Mapping[str, str]]] = MappingProxyType({})


class ConfigSchema(Protocol):
    def is_list(self, resource_type: ResourceType, name: str) -> bool:
        """Whether elements can be appended to and subtracted from this key."""

    def default(self, resource_type: ResourceType, name: str) -> str | None:
        """What the key is, where nothing sets it."""

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        changed: frozenset[str],
        planned: Mapping[ConfigResource, Mapping[str, str]] = NOTHING_PLANNED,
    ) -> None:
        """Raises a KafkaError if the resource may not have `configs`, of which `changed` are new or gone. Others get
        theirs with it, as `planned`."""
