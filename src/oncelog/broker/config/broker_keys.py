"""The broker keys that are served: Kafka's names, defaults and rules, and two of our own (`metrics.port` and
`oncelog.transaction.version`).

Keys that set the default of a topic key are derived from that key, so that the rule is written once. Which keys may
change while the broker runs follows Kafka; the keys of Kafka's without an effect here are in `kept_keys`.
"""

from __future__ import annotations

from dataclasses import replace

from oncelog.broker.config.definition import ConfigKey, ConfigType, UpdateMode, Validator, Value, at_least, between
from oncelog.broker.config.group_keys import GROUP_BROKER_KEYS
from oncelog.broker.config.topic_keys import TOPIC_KEYS
from oncelog.broker.config.transaction_keys import TRANSACTION_KEYS

DEFAULT_NODE_ID = "1"
DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
DEFAULT_LOG_DIR = "oncelog-data"
INT_MAX = 2**31 - 1


def _retention(value: Value) -> None:
    if value == 0:
        raise ValueError("Value must be unlimited (-1) or, equal or greater than 1")


def _key(
    name: str, config_type: ConfigType, default: str | None, documentation: str, validator: Validator | None = None
) -> ConfigKey:
    return ConfigKey(name, config_type, default, documentation, validator)


def _dynamic(key: ConfigKey) -> ConfigKey:
    return replace(key, update_mode=UpdateMode.CLUSTER_WIDE)


def _topic_default(name: str, topic_key: str, default: str | None = "as the topic key") -> ConfigKey:
    """The broker key whose value is the default of a topic key in the same unit."""
    key = TOPIC_KEYS[topic_key]
    return replace(
        key,
        name=name,
        default=key.default if default == "as the topic key" else default,
        documentation=f"Default of the topic config {topic_key}. {key.documentation}",
        synonyms=(),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )


_IDENTITY = (
    _key("node.id", ConfigType.INT, DEFAULT_NODE_ID, "The broker's number in the cluster.", at_least(0)),
    replace(
        _key(
            "listeners",
            ConfigType.LIST,
            DEFAULT_LISTENER,
            "Where to listen, as [PLAINTEXT://]host:port; port 0 picks a free one. A running broker stays where it is.",
        ),
        update_mode=UpdateMode.PER_BROKER,
    ),
    _key("advertised.listeners", ConfigType.LIST, None, "Where clients reach the broker, if not at its listener."),
    _key("broker.rack", ConfigType.STRING, None, "The rack that metadata shows for this broker."),
    _key("log.dir", ConfigType.STRING, DEFAULT_LOG_DIR, "The directory of all data, unless log.dirs says otherwise."),
    _key("log.dirs", ConfigType.STRING, None, "The directory of all data. One only."),
    _key(
        "metrics.port",
        ConfigType.INT,
        None,
        "Serve Prometheus metrics at this port; unset serves none.",
        between(0, 65535),
    ),
)

_TOPICS = (
    _key("auto.create.topics.enable", ConfigType.BOOLEAN, "true", "Create a topic when a client first asks for it."),
    _key("default.replication.factor", ConfigType.INT, "1", "Replicas of a topic whose creator does not say."),
    _key("delete.topic.enable", ConfigType.BOOLEAN, "true", "Whether topics may be deleted."),
    _key("num.partitions", ConfigType.INT, "1", "Partitions of a topic whose creator does not say.", at_least(1)),
    _key(
        "max.request.partition.size.limit",
        ConfigType.INT,
        "2000",
        "The most partitions in one answer to DescribeTopicPartitions.",
        at_least(1),
    ),
)

_NETWORK = (
    _key("connections.max.idle.ms", ConfigType.LONG, "600000", "Close a connection that was silent for this long."),
    _key(
        "fetch.max.bytes",
        ConfigType.INT,
        str(55 << 20),
        "The most record bytes in one answer to a fetch.",
        at_least(1024),
    ),
    _key(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        "1000",
        "Incremental fetch sessions kept.",
        at_least(0),
    ),
    _key(
        "socket.request.max.bytes",
        ConfigType.INT,
        str(100 << 20),
        "The largest request; a larger one closes its connection.",
        at_least(1),
    ),
    _key(
        "quota.window.num", ConfigType.INT, "11", "Samples that the rate of a client quota is taken over.", at_least(1)
    ),
    _key("quota.window.size.seconds", ConfigType.INT, "1", "How long such a sample is.", at_least(1)),
    _dynamic(_key("max.connections", ConfigType.INT, str(INT_MAX), "Connections served at a time.", at_least(0))),
)

_PRODUCERS = (
    _dynamic(
        _key(
            "producer.id.expiration.ms",
            ConfigType.INT,
            "86400000",
            "Forget a producer that was silent for this long.",
            at_least(1),
        )
    ),
    _key(
        "producer.id.expiration.check.interval.ms",
        ConfigType.INT,
        "600000",
        "How often silent producers are looked for.",
        at_least(1),
    ),
)

_LOGS = (
    _dynamic(
        _key(
            "log.cleaner.backoff.ms",
            ConfigType.LONG,
            "15000",
            "Pause of the cleaner when nothing needs compaction.",
            at_least(0),
        )
    ),
    _key("log.cleaner.enable", ConfigType.BOOLEAN, "true", "Whether logs are compacted at all."),
    _key(
        "log.flush.offset.checkpoint.interval.ms",
        ConfigType.INT,
        "60000",
        "How often recovery points are written down.",
        at_least(0),
    ),
    _key(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        str(2**63 - 1),
        "How often logs are checked for a flush by time.",
    ),
    _key("log.retention.check.interval.ms", ConfigType.LONG, "300000", "How often retention is applied.", at_least(1)),
    _key(
        "metadata.log.max.record.bytes.between.snapshots",
        ConfigType.LONG,
        str(20 << 20),
        "Bytes of metadata log after which a snapshot replaces them.",
        at_least(1),
    ),
    _dynamic(
        _key(
            "num.recovery.threads.per.data.dir",
            ConfigType.INT,
            "2",
            "Threads that recover logs at the start.",
            at_least(1),
        )
    ),
)

_TOPIC_DEFAULTS = (
    _topic_default("compression.gzip.level", "compression.gzip.level"),
    _topic_default("compression.lz4.level", "compression.lz4.level"),
    _topic_default("compression.type", "compression.type"),
    _topic_default("compression.zstd.level", "compression.zstd.level"),
    _topic_default("log.cleaner.delete.retention.ms", "delete.retention.ms"),
    _topic_default("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
    _topic_default("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
    _topic_default("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
    _topic_default("log.cleanup.policy", "cleanup.policy"),
    _topic_default("log.flush.interval.messages", "flush.messages"),
    _topic_default("log.flush.interval.ms", "flush.ms", default=None),
    _topic_default("log.index.interval.bytes", "index.interval.bytes"),
    _topic_default("log.index.size.max.bytes", "segment.index.bytes"),
    _topic_default("log.local.retention.bytes", "local.retention.bytes"),
    _topic_default("log.local.retention.ms", "local.retention.ms"),
    _topic_default("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"),
    _topic_default("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"),
    _topic_default("log.message.timestamp.type", "message.timestamp.type"),
    _topic_default("log.preallocate", "preallocate"),
    _topic_default("log.retention.bytes", "retention.bytes"),
    replace(_topic_default("log.retention.ms", "retention.ms", default=None), validator=_retention),
    _key("log.retention.minutes", ConfigType.INT, None, "log.retention.ms in minutes.", _retention),
    _key("log.retention.hours", ConfigType.INT, "168", "log.retention.ms in hours.", _retention),
    _topic_default("log.roll.jitter.ms", "segment.jitter.ms", default=None),
    _key("log.roll.jitter.hours", ConfigType.INT, "0", "log.roll.jitter.ms in hours.", at_least(0)),
    _topic_default("log.roll.ms", "segment.ms", default=None),
    _key("log.roll.hours", ConfigType.INT, "168", "log.roll.ms in hours.", at_least(1)),
    _topic_default("log.segment.bytes", "segment.bytes"),
    _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms"),
    _topic_default("message.max.bytes", "max.message.bytes"),
    _topic_default("min.insync.replicas", "min.insync.replicas"),
    _topic_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
)

BROKER_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for group in (_IDENTITY, _TOPICS, _NETWORK, _PRODUCERS, TRANSACTION_KEYS, GROUP_BROKER_KEYS, _LOGS, _TOPIC_DEFAULTS)
    for key in sorted(group, key=lambda key: key.name)
}
