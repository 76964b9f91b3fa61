"""The keys of consumer groups: what a broker is told about all of them, and what one group may say about itself.

Kafka's names, defaults and rules. All of the broker's are read-only while it runs, as with Kafka. Differs for one key:
`offsets.topic.replication.factor` is 1 by default, since Kafka's 3 could never be met by the one node that there is.
The keys that a group may set are those of its KIP-848 protocol; Kafka's for share and streams groups, and its interval
between assignments, would have no effect here and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.config.definition import (
    ConfigKey,
    ConfigType,
    Synonym,
    Validator,
    Value,
    at_least,
    between,
    each_of,
    nearest,
    unknown_key,
)
from oncelog.errors import InvalidConfig

INT_MAX = str(2**31 - 1)
ASSIGNORS = ("uniform", "range")
REBALANCE_PROTOCOLS = ("classic", "consumer", "share", "streams")
MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")
MAX_CODEC = 4


def _migration_policy(value: Value) -> None:
    if str(value).lower() not in MIGRATION_POLICIES:
        raise ValueError(f"String must be one of (case insensitive): {', '.join(MIGRATION_POLICIES).upper()}")


def _key(
    name: str, config_type: ConfigType, default: str, documentation: str, validator: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, config_type, default, documentation, validator)


def _time(name: str, default: int, documentation: str, minimum: int = 1) -> ConfigKey:
    return _key(name, ConfigType.INT, str(default), documentation, at_least(minimum))


GROUP_BROKER_KEYS = (
    _key(
        "group.min.session.timeout.ms",
        ConfigType.INT,
        "6000",
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    _key("group.max.session.timeout.ms", ConfigType.INT, "1800000", "The longest one."),
    _key(
        "group.initial.rebalance.delay.ms",
        ConfigType.INT,
        "0",
        "How long an empty classic group waits for more members before its first rebalance; Kafka's default is 3000.",
    ),
    _key("group.max.size", ConfigType.INT, INT_MAX, "The most members of a classic group.", at_least(1)),
    _time("group.consumer.session.timeout.ms", 45_000, "When a silent member of a consumer group is removed."),
    _time("group.consumer.min.session.timeout.ms", 45_000, "The shortest that a group may set it to."),
    _time("group.consumer.max.session.timeout.ms", 60_000, "The longest that a group may set it to."),
    _time("group.consumer.heartbeat.interval.ms", 5_000, "How often members of a consumer group report."),
    _time("group.consumer.min.heartbeat.interval.ms", 5_000, "The shortest that a group may set it to."),
    _time("group.consumer.max.heartbeat.interval.ms", 15_000, "The longest that a group may set it to."),
    _key("group.consumer.max.size", ConfigType.INT, INT_MAX, "The most members of a consumer group.", at_least(1)),
    _key(
        "group.consumer.assignors",
        ConfigType.LIST,
        ",".join(ASSIGNORS),
        "The assignors that a consumer group may choose; the first is what it gets otherwise.",
        each_of(*ASSIGNORS),
    ),
    _key(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol while it runs.",
        _migration_policy,
    ),
    _time(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the topics that a regular expression matches are looked for.",
        minimum=10_000,
    ),
    _key(
        "group.coordinator.rebalance.protocols",
        ConfigType.LIST,
        "classic,consumer,streams",
        "The group protocols that are served; share and streams are never.",
        each_of(*REBALANCE_PROTOCOLS),
    ),
    _key("offset.metadata.max.bytes", ConfigType.INT, "4096", "The most metadata with one committed offset."),
    _key(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        "50",
        "Partitions of __consumer_offsets, which is created when it is first needed.",
        at_least(1),
    ),
    _key("offsets.topic.replication.factor", ConfigType.SHORT, "1", "Its replicas.", at_least(1)),
    _key(
        "offsets.topic.segment.bytes",
        ConfigType.INT,
        str(100 << 20),
        "Size of its segments. Only closed ones are compacted.",
        at_least(1),
    ),
    _key(
        "offsets.topic.compression.codec",
        ConfigType.INT,
        "0",
        "How its batches are compressed: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, MAX_CODEC),
    ),
    _key(
        "offsets.retention.minutes",
        ConfigType.INT,
        "10080",
        "How long a group's offsets are kept once it has no members.",
        at_least(1),
    ),
    _key(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        "600000",
        "How often expired offsets are looked for.",
        at_least(1),
    ),
)

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

GROUP_KEYS: dict[str, ConfigKey] = {
    name: ConfigKey(name, ConfigType.INT, default, words, at_least(1), (Synonym(f"group.{name}"),))
    for name, default, words in (
        (SESSION_TIMEOUT, "45000", "When a silent member of the group is removed."),
        (HEARTBEAT_INTERVAL, "5000", "How often its members report."),
    )
}

_ORDERED = tuple(
    (f"group.{low}", f"group.{high}")
    for low, high in (
        ("min.session.timeout.ms", "max.session.timeout.ms"),
        ("consumer.min.session.timeout.ms", "consumer.session.timeout.ms"),
        ("consumer.session.timeout.ms", "consumer.max.session.timeout.ms"),
        ("consumer.min.heartbeat.interval.ms", "consumer.heartbeat.interval.ms"),
        ("consumer.heartbeat.interval.ms", "consumer.max.heartbeat.interval.ms"),
    )
)


def check_group_values(values: Mapping[str, Value | None]) -> None:
    """Rules between the broker's keys. Raises InvalidConfig."""
    for low, high in _ORDERED:
        if _number(values, low) > _number(values, high):
            raise InvalidConfig(f"{high} ({values[high]}) must be greater than or equal to {low} ({values[low]})")
    session, heartbeat = f"group.{SESSION_TIMEOUT}", f"group.{HEARTBEAT_INTERVAL}"
    if _number(values, heartbeat) >= _number(values, session):
        raise InvalidConfig(f"{heartbeat} ({values[heartbeat]}) must be less than {session} ({values[session]})")


def group_values(broker_values: Mapping[str, Value | None], texts: Mapping[str, str]) -> dict[str, int]:
    """The effective value of every key of a group. Raises InvalidConfig, in Kafka's words."""
    for name in texts:
        if name not in GROUP_KEYS:
            raise unknown_key("group", name, nearest(name, GROUP_KEYS))
    values = {name: _number(broker_values, f"group.{name}") for name in GROUP_KEYS}
    values.update({name: int(GROUP_KEYS[name].parse(text)) for name, text in sorted(texts.items())})  # type: ignore[arg-type]
    for name in texts:
        prefix, _, rest = name.partition(".")
        shortest, longest = f"group.{prefix}.min.{rest}", f"group.{prefix}.max.{rest}"
        if values[name] < _number(broker_values, shortest):
            raise InvalidConfig(f"{name} must be greater than or equal to {shortest}")
        if values[name] > _number(broker_values, longest):
            raise InvalidConfig(f"{name} must be less than or equal to {longest}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidConfig(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
    return values


def _number(values: Mapping[str, Value | None], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value
