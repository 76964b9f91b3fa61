"""Which of the oldest segments may go: by age, by size, or because DeleteRecords has moved the start beyond them.

A decision over values; it removes nothing. Only ever a prefix of the log goes. By age or size nothing goes that lies
at or above the last stable offset: neither what is above the high watermark, nor what belongs to an open transaction,
whose commit would otherwise show readers a part of it. DeleteRecords is a request, and deletes what it names, as
Kafka does.
"""

from __future__ import annotations

from itertools import takewhile

from oncelog.log.config import LogConfig
from oncelog.log.segment import Segment
from oncelog.log.segments import Segments


def deletable_count(
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> int:
    """How many segments, from the oldest on, retention may remove. Records are as old as `now_ms` says."""
    stable = takewhile(lambda segment: segments.end_offset(segment, log_end_offset) <= last_stable_offset, segments)
    candidates = [segment for segment in stable if segment is not segments.active or segment.size_bytes]
    count = sum(1 for segment in segments.sealed if segments.end_offset(segment, log_end_offset) <= log_start_offset)
    if config.deletes:
        count = max(count, _expired(candidates, config, now_ms), _oversized(candidates, config, segments.size_bytes))
    return count


def _expired(candidates: list[Segment], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    for position, segment in enumerate(candidates):
        if now_ms - segment.largest_timestamp() <= config.retention_ms:
            return position
    return len(candidates)


def _oversized(candidates: list[Segment], config: LogConfig, size_bytes: int) -> int:
    if config.retention_bytes < 0:
        return 0
    excess = size_bytes - config.retention_bytes
    for position, segment in enumerate(candidates):
        excess -= segment.size_bytes
        if excess < 0:
            return position
    return len(candidates)
