"""What a topic may set about its logs, as typed values: Kafka's topic keys with `.` written as `_`.

Holds Kafka's defaults and nothing else. Parsing, validation and documentation of the strings users write are the
broker's (`broker/config.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.types import TimestampType

DELETE: Final = "delete"
COMPACT: Final = "compact"
NO_LIMIT: Final = 2**63 - 1
UNLIMITED_RETENTION: Final = -1

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED_RETENTION
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    max_message_bytes: int = 1024 * 1024 + 12
    flush_messages: int = NO_LIMIT
    flush_ms: int = NO_LIMIT
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    file_delete_delay_ms: int = 60_000
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    preallocate: bool = False
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = _DAY_MS

    @property
    def deletes(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return COMPACT in self.cleanup_policy
