"""What Kafka 4.3.1 accepts and refuses in a topic's configs, word for word as a running one answered."""

from __future__ import annotations

import pytest

from oncelog.broker.config.topic_keys import TOPIC_KEYS, log_config, parse_topic_configs
from oncelog.errors import InvalidConfig
from oncelog.log.config import LogConfig
from oncelog.types import TimestampType

DEFAULTS = {name: key.default_value for name, key in TOPIC_KEYS.items()}

REFUSED = [
    ("foo", "1", "Unknown topic config name: foo"),
    ("retention.sm", "1", "Unknown topic config name: retention.sm; did you mean retention.ms?"),
    ("log.retention.hours", "1", "Unknown topic config name: log.retention.hours; did you mean retention.ms?"),
    ("message.format.version", "2.0", "Unknown topic config name: message.format.version"),
    ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    ("segment.ms", "0", "Invalid value 0 for configuration segment.ms: Value must be at least 1"),
    ("segment.bytes", "10", "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576"),
    (
        "segment.bytes",
        "99999999999",
        "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        "cleanup.policy",
        "xx",
        "Invalid value xx for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        "compression.type",
        "foo",
        "Invalid value foo for configuration compression.type: "
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "message.timestamp.type",
        "x",
        "Invalid value x for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
    ),
    (
        "leader.replication.throttled.replicas",
        "zz",
        "Invalid value [zz] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    (
        "remote.storage.enable",
        "true",
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
]
ACCEPTED = [
    ("cleanup.policy", "", ()),
    ("cleanup.policy", "delete,delete", ("delete",)),
    ("cleanup.policy", "compact, delete", ("compact", "delete")),
    ("retention.ms", " 100 ", 100),
    ("retention.bytes", "-100", -100),
    ("local.retention.ms", "5", 5),
    ("leader.replication.throttled.replicas", "0:1", ("0:1",)),
    ("leader.replication.throttled.replicas", "*", ("*",)),
    ("unclean.leader.election.enable", "TRUE", True),
    ("internal.segment.bytes", "1000", 1000),
    ("min.compaction.lag.ms", "9223372036854775807", 2**63 - 1),
]


@pytest.mark.parametrize(("name", "text", "words"), REFUSED)
def test_refused_in_kafkas_words(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        parse_topic_configs({name: text})
    assert refusal.value.message == words


@pytest.mark.parametrize(("name", "text", "value"), ACCEPTED)
def test_accepted_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert parse_topic_configs({name: text}) == {name: value}


def test_a_hostile_number_is_no_number() -> None:
    with pytest.raises(InvalidConfig, match="Not a number of type LONG"):
        parse_topic_configs({"retention.ms": "9" * 100_000})


def test_kafkas_defaults_are_the_logs_defaults() -> None:
    assert log_config(DEFAULTS, producer_id_expiration_ms=86_400_000) == LogConfig()


def test_every_setting_reaches_the_log() -> None:
    texts = {
        "segment.bytes": "2000000",
        "segment.ms": "3",
        "segment.jitter.ms": "4",
        "segment.index.bytes": "5",
        "index.interval.bytes": "6",
        "retention.ms": "7",
        "retention.bytes": "8",
        "cleanup.policy": "compact",
        "max.message.bytes": "9",
        "flush.messages": "10",
        "flush.ms": "11",
        "delete.retention.ms": "12",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "13",
        "max.compaction.lag.ms": "14",
        "file.delete.delay.ms": "15",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "16",
        "message.timestamp.after.max.ms": "17",
        "compression.type": "zstd",
        "compression.gzip.level": "1",
        "compression.lz4.level": "2",
        "compression.zstd.level": "4",
        "min.insync.replicas": "2",
        "preallocate": "true",
        "unclean.leader.election.enable": "true",
    }
    config = log_config({**DEFAULTS, **parse_topic_configs(texts)}, producer_id_expiration_ms=18)
    assert config == LogConfig(
        segment_bytes=2_000_000,
        segment_ms=3,
        segment_jitter_ms=4,
        segment_index_bytes=5,
        index_interval_bytes=6,
        retention_ms=7,
        retention_bytes=8,
        cleanup_policy=frozenset({"compact"}),
        max_message_bytes=9,
        flush_messages=10,
        flush_ms=11,
        delete_retention_ms=12,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=13,
        max_compaction_lag_ms=14,
        file_delete_delay_ms=15,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        message_timestamp_before_max_ms=16,
        message_timestamp_after_max_ms=17,
        compression_type="zstd",
        compression_gzip_level=1,
        compression_lz4_level=2,
        compression_zstd_level=4,
        min_insync_replicas=2,
        preallocate=True,
        unclean_leader_election_enable=True,
        producer_id_expiration_ms=18,
    )


def test_small_segments_for_tests() -> None:
    values = {**DEFAULTS, **parse_topic_configs({"internal.segment.bytes": "1000"})}
    assert log_config(values, producer_id_expiration_ms=1).segment_bytes == 1000
