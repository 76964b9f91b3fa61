"""What only `Admin` is handed, checked: resources, named offsets, quotas. The rest is in `client.arguments`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from oncelog.admin.values import ANY_NAME, OffsetSpec, ResourceType
from oncelog.client import arguments as checked
from oncelog.client.leaders import raise_error
from oncelog.errors import InvalidConfig
from oncelog.wire.codec import Message

Configs = Mapping[str, "str | int | float | bool | Sequence[str]"]
"""Topic and broker configs by Kafka's names: `{"retention.ms": 60000, "cleanup.policy": ["compact", "delete"]}`."""

ENTITY_KINDS = ("user", "client-id", "ip")


def raise_config_error(result: Message, name: str, kind: str, keys: Iterable[str]) -> None:
    """As `raise_error`. Of a topic config that there is not, Apache Kafka does not tell which one may be meant."""
    try:
        raise_error(result, name, kind)
    except InvalidConfig as error:
        for key in keys:
            if error.message.endswith(f"Unknown topic config name: {key}"):
                from oncelog.broker.config.topic_keys import topic_key_meant  # many, for a mistake alone

                meant = topic_key_meant(key)
                if meant is not None:
                    raise InvalidConfig(f"{error.message}; did you mean {meant}?") from None
        raise


def resource_of(kind: Any, name: Any) -> tuple[ResourceType, str]:
    """What has configs: "topic", "broker" or "group", and its name. Other libraries' enums are known by their names."""
    found = _member(ResourceType, kind)
    if found is None:
        names = ", ".join(f'"{one.name.lower()}"' for one in ResourceType)
        raise ValueError(f"resource_type is a ResourceType, or one of {names}; not {checked.shown(kind)}")
    if found is ResourceType.TOPIC:
        return found, checked.a_text(name, "the name of the topic")
    if found is ResourceType.BROKER and (name == "" or (isinstance(name, int) and not isinstance(name, bool))):
        return found, str(name)  # its node id; "" means all brokers
    return found, checked.text(name, f"the name of the {found.name.lower()}")


def spec_of(given: Any) -> int:
    """An offset that has a name, or a time."""
    found: OffsetSpec | None = _member(OffsetSpec, given)
    if found is not None:
        return found
    if isinstance(given, str):
        names = ", ".join(one.name.lower() for one in OffsetSpec)
        raise ValueError(f"an offset is asked for by a timestamp in milliseconds, or as {names}; not as {given!r}")
    return checked.moment_ms(given, "the timestamp")


def _member(kind: type[Enum], given: Any) -> Any:
    if isinstance(given, kind):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return next((one for one in kind if one.value == given), None)
    name = given.name if isinstance(given, Enum) else given
    return kind.__members__.get(name.upper().replace("-", "_")) if isinstance(name, str) else None


def checked_entity(given: Any) -> dict[str, Any]:
    """Who a quota is for."""
    if not isinstance(given, Mapping):
        raise TypeError(f'an entity is a mapping such as {{"client-id": "importer"}}, not {checked.shown(given)}')
    for kind, name in given.items():
        if not isinstance(kind, str):
            raise TypeError(f"an entity has {', '.join(ENTITY_KINDS)}; not {checked.shown(kind)}")
        if name is not None and name is not ANY_NAME:
            checked.text(name, f"the {kind}")
    return dict(given)


def checked_limits(given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise TypeError(f'limits are a mapping such as {{"producer_byte_rate": 1_000_000}}, not {checked.shown(given)}')
    return {checked.text(key, "each key of assign"): _limit(key, value) for key, value in given.items()}


def _limit(key: str, given: Any) -> float:
    if isinstance(given, bool | str) or not hasattr(type(given), "__float__"):
        raise TypeError(f"{key} is a number, not {checked.shown(given)}")
    return float(given)
