"""Which of the oldest segments may go: by age, by size, or because DeleteRecords has moved the start beyond them.

A decision over values; it removes nothing. Only ever a prefix of the log goes, and nothing above the high watermark.
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
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many segments, from the oldest on, retention may remove."""
    below_high_watermark = takewhile(
        lambda segment: segments.end_offset(segment, log_end_offset) <= high_watermark, segments
    )
    candidates = [segment for segment in below_high_watermark if segment is not segments.active or segment.size_bytes]
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
