"""The topic keys of Apache Kafka 4.3: what a topic may say about itself, and how that becomes a `LogConfig`.

A key that is accepted is honoured. Three groups need a word:
- `remote.storage.enable=true` is refused, in Kafka's words for a broker without tiered storage. The other keys of
  tiered storage say nothing without it, and are accepted as Kafka accepts them there.
- Throttled replicas and unclean elections concern several replicas; a topic with one replica fulfils any value.
- `internal.segment.bytes` sets small segments for tests, as Kafka's own tests do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

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
    one_of,
    unknown_key,
)
from oncelog.errors import InvalidConfig
from oncelog.log.config import LogConfig
from oncelog.types import TimestampType

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
LONG_MAX = 2**63 - 1
SEGMENT_BYTES_MIN = 1024 * 1024
"""Kafka refuses smaller segments: they would only make more files."""

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)


def _gzip_level(value: Value) -> None:
    if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
        raise ValueError("Value must be between 1 and 9 or equal to -1")


def _throttled_replicas(name: str) -> Validator:
    def check(value: Value) -> None:
        assert isinstance(value, tuple)
        if value != ("*",) and not all(THROTTLED_REPLICA.fullmatch(replica) for replica in value):
            raise ValueError(
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )

    return check


def _key(
    name: str,
    config_type: ConfigType,
    default: str | None,
    documentation: str,
    validator: Validator | None = None,
    *synonyms: Synonym | str,
    internal: bool = False,
) -> ConfigKey:
    broker_keys = tuple(Synonym(one) if isinstance(one, str) else one for one in synonyms)
    return ConfigKey(name, config_type, default, documentation, validator, broker_keys, internal=internal)


_LEADER_THROTTLE = "leader.replication.throttled.replicas"
_FOLLOWER_THROTTLE = "follower.replication.throttled.replicas"
_THROTTLE_WORDS = "Replicas to throttle on the {side} side, as [partition]:[broker],... or '*'."

TOPIC_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        _key(
            "cleanup.policy", ConfigType.LIST, "delete",
            "What happens to old segments: 'delete' drops them by retention.ms and retention.bytes, 'compact' keeps "
            "the latest record of each key, both do both, an empty list keeps everything.",
            each_of("compact", "delete"), "log.cleanup.policy",
        ),
        _key(
            "compression.gzip.level", ConfigType.INT, "-1",
            "Level that the broker uses where compression.type is gzip; -1 is the codec's own default.",
            _gzip_level, "compression.gzip.level",
        ),
        _key(
            "compression.lz4.level", ConfigType.INT, "9",
            "Level that the broker uses where compression.type is lz4.",
            between(1, 17), "compression.lz4.level",
        ),
        _key(
            "compression.type", ConfigType.STRING, "producer",
            "How batches are stored: as the producer sent them ('producer'), uncompressed, or in the named codec.",
            one_of(*CODECS), "compression.type",
        ),
        _key(
            "compression.zstd.level", ConfigType.INT, "3",
            "Level that the broker uses where compression.type is zstd.",
            between(-131072, 22), "compression.zstd.level",
        ),
        _key(
            "delete.retention.ms", ConfigType.LONG, str(DAY_MS),
            "How long compaction keeps a tombstone, so that a reader that began earlier still learns of the deletion.",
            at_least(0), "log.cleaner.delete.retention.ms",
        ),
        _key(
            "file.delete.delay.ms", ConfigType.LONG, "60000",
            "How long a deleted segment's files stay on the disk under another name.",
            at_least(0), "log.segment.delete.delay.ms",
        ),
        _key(
            "flush.messages", ConfigType.LONG, str(LONG_MAX),
            "Force the log to the disk after this many records. 1 acknowledges only what survives a power loss.",
            at_least(1), "log.flush.interval.messages",
        ),
        _key(
            "flush.ms", ConfigType.LONG, str(LONG_MAX),
            "Force the log to the disk when its oldest unflushed record is this old.",
            at_least(0), "log.flush.interval.ms", "log.flush.scheduler.interval.ms",
        ),
        _key(
            _FOLLOWER_THROTTLE, ConfigType.LIST, "",
            _THROTTLE_WORDS.format(side="follower's"), _throttled_replicas(_FOLLOWER_THROTTLE),
        ),
        _key(
            "index.interval.bytes", ConfigType.INT, "4096",
            "Bytes of log between two entries of the offset index.",
            at_least(0), "log.index.interval.bytes",
        ),
        _key(
            "internal.segment.bytes", ConfigType.INT, None,
            "Size of a segment, without the lower limit of segment.bytes. For tests.",
            internal=True,
        ),
        _key(
            _LEADER_THROTTLE, ConfigType.LIST, "",
            _THROTTLE_WORDS.format(side="leader's"), _throttled_replicas(_LEADER_THROTTLE),
        ),
        _key(
            "local.retention.bytes", ConfigType.LONG, "-2",
            "Bytes kept on the local disk with tiered storage; -2 means retention.bytes.",
            at_least(-2), "log.local.retention.bytes",
        ),
        _key(
            "local.retention.ms", ConfigType.LONG, "-2",
            "Time kept on the local disk with tiered storage; -2 means retention.ms.",
            at_least(-2), "log.local.retention.ms",
        ),
        _key(
            "max.compaction.lag.ms", ConfigType.LONG, str(LONG_MAX),
            "The longest that a record may stay uncompacted.",
            at_least(1), "log.cleaner.max.compaction.lag.ms",
        ),
        _key(
            "max.message.bytes", ConfigType.INT, "1048588",
            "The largest record batch, as compressed by the producer.",
            at_least(0), "message.max.bytes",
        ),
        _key(
            "message.timestamp.after.max.ms", ConfigType.LONG, str(HOUR_MS),
            "How far a record's timestamp may lie in the future; further ones are refused with INVALID_TIMESTAMP.",
            at_least(0), "log.message.timestamp.after.max.ms",
        ),
        _key(
            "message.timestamp.before.max.ms", ConfigType.LONG, str(LONG_MAX),
            "How far a record's timestamp may lie in the past; further ones are refused with INVALID_TIMESTAMP.",
            at_least(0), "log.message.timestamp.before.max.ms",
        ),
        _key(
            "message.timestamp.type", ConfigType.STRING, "CreateTime",
            "Whether a record carries the producer's time (CreateTime) or the broker's (LogAppendTime).",
            one_of(*TIMESTAMP_TYPES), "log.message.timestamp.type",
        ),
        _key(
            "min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5",
            "The share of a log that must be uncompacted before it is compacted.",
            between(0, 1), "log.cleaner.min.cleanable.ratio",
        ),
        _key(
            "min.compaction.lag.ms", ConfigType.LONG, "0",
            "The shortest that a record stays uncompacted.",
            at_least(0), "log.cleaner.min.compaction.lag.ms",
        ),
        _key(
            "min.insync.replicas", ConfigType.INT, "1",
            "Replicas that must have a record before it is acknowledged with acks=all.",
            at_least(1), "min.insync.replicas",
        ),
        _key(
            "preallocate", ConfigType.BOOLEAN, "false",
            "Reserve a new segment's space on the disk at once.",
            None, "log.preallocate",
        ),
        _key(
            "remote.log.copy.disable", ConfigType.BOOLEAN, "false",
            "With tiered storage: copy no more segments to it.",
        ),
        _key(
            "remote.log.delete.on.disable", ConfigType.BOOLEAN, "false",
            "With tiered storage: delete what it holds when it is disabled.",
        ),
        _key(
            "remote.storage.enable", ConfigType.BOOLEAN, "false",
            "Tiered storage, which this broker does not have.",
        ),
        _key(
            "retention.bytes", ConfigType.LONG, "-1",
            "Size of a partition above which its oldest segments are deleted; -1 sets no limit.",
            None, "log.retention.bytes",
        ),
        _key(
            "retention.ms", ConfigType.LONG, str(7 * DAY_MS),
            "Age above which segments are deleted; -1 sets no limit.",
            at_least(-1),
            "log.retention.ms", Synonym("log.retention.minutes", MINUTE_MS), Synonym("log.retention.hours", HOUR_MS),
        ),
        _key(
            "segment.bytes", ConfigType.INT, str(1 << 30),
            "Size at which a segment is closed and a new one begun.",
            at_least(SEGMENT_BYTES_MIN), "log.segment.bytes",
        ),
        _key(
            "segment.index.bytes", ConfigType.INT, str(10 << 20),
            "Size at which a segment's offset index is full, and the segment closed.",
            at_least(4), "log.index.size.max.bytes",
        ),
        _key(
            "segment.jitter.ms", ConfigType.LONG, "0",
            "At most this is subtracted at random from segment.ms, so that not all segments roll at once.",
            at_least(0), "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS),
        ),
        _key(
            "segment.ms", ConfigType.LONG, str(7 * DAY_MS),
            "Age at which a segment is closed although it is not full.",
            at_least(1), "log.roll.ms", Synonym("log.roll.hours", HOUR_MS),
        ),
        _key(
            "unclean.leader.election.enable", ConfigType.BOOLEAN, "false",
            "Let a replica that is not in sync become the leader, and lose what it lacks.",
            None, "unclean.leader.election.enable",
        ),
    )
}  # fmt: skip

_LOG_FIELDS = frozenset(field.name for field in fields(LogConfig))


def parse_topic_configs(texts: Mapping[str, str]) -> dict[str, Value]:
    """What a topic sets, as values. Raises InvalidConfig as Kafka does, for the first fault in the order of names."""
    for name in texts:
        if name not in TOPIC_KEYS:
            raise unknown_key("topic", name, topic_key_meant(name))
    values = {name: TOPIC_KEYS[name].parse(text) for name, text in sorted(texts.items())}
    if values.get("remote.storage.enable"):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    return values


def topic_key_meant(name: str) -> str | None:
    """The key that says of a topic what this one says of a broker, or else the most similar one."""
    of_brokers = {synonym.name: key.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
    return of_brokers.get(name) or nearest(name, TOPIC_KEYS)


def check_compaction_lags(values: Mapping[str, Value | None]) -> None:
    """A rule between two keys: it holds for the effective values, whichever level set them."""
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(shortest, int)
    assert isinstance(longest, int)
    if shortest > longest:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def log_config(values: Mapping[str, Value | None], producer_id_expiration_ms: int) -> LogConfig:
    """The effective values of every topic key, as the log takes them."""
    chosen: dict[str, Any] = {key.field: values[key.name] for key in TOPIC_KEYS.values() if key.field in _LOG_FIELDS}
    chosen["segment_bytes"] = values["internal.segment.bytes"] or values["segment.bytes"]
    chosen["cleanup_policy"] = frozenset(_texts(values["cleanup.policy"]))
    chosen["message_timestamp_type"] = TIMESTAMP_TYPES[str(values["message.timestamp.type"])]
    return LogConfig(producer_id_expiration_ms=producer_id_expiration_ms, **chosen)


def _texts(value: Value | None) -> Iterable[str]:
    assert isinstance(value, tuple)
    return value
