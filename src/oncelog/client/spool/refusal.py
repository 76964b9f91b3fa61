"""What a user is told who has to decide: which records of which partitions, and what can be done about them.

Only words: it decides nothing, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from oncelog.client.spool.errors import SpoolFateUnknown
from oncelog.client.spool.fate import Unknown
from oncelog.client.spool.ranges import EntryRanges
from oncelog.client.spool.recovery import Recovery
from oncelog.printable import counted
from oncelog.types import TopicPartition

MAX_NAMED = 5
"""Partitions, ranges and files that an error names; there may be thousands."""


class Entries(Protocol):
    """What a spool knows of its entries."""

    @property
    def is_untouched(self) -> bool: ...
    def unreadable(self, partition: TopicPartition, first: int, end: int) -> list[tuple[int, int]]: ...
    def settled_end(self, partition: TopicPartition) -> int: ...


def refusal(directory: str, unknown: Iterable[Unknown], found: Recovery, entries: Entries) -> SpoolFateUnknown:
    asked = _by_partition_and_reason(unknown)
    readable = 0
    named = []
    for (partition, reason), ranges in asked.items():
        gone = [each for first, end in ranges for each in entries.unreadable(partition, first, end)]
        readable += _count(ranges) - _count(gone)
        named.append(_in_words(partition, reason, list(ranges), gone, found, entries))
    damages = [str(one) for one in found.damages]
    lost = bool(found.lost)
    what = counted(readable, "record") if readable else "none, as none of them can be read"
    parts = [
        f"records that an earlier run left in {directory} may or may not be stored: {_shortened(named, 'partitions')}.",
        "Nothing was sent or changed." if entries.is_untouched or not damages else "Nothing was sent.",
        _cure(damages, lost, is_untouched=entries.is_untouched),
        f"Look into the topic, then open the spool once with spool_unknown=resend (sends {what}; may store them twice)",
        f"or spool_unknown=discard (moves {what} to a file beside; may lose them)",
    ]
    return SpoolFateUnknown(" ".join(part for part in parts if part))


def _by_partition_and_reason(unknown: Iterable[Unknown]) -> dict[tuple[TopicPartition, str], EntryRanges]:
    found: dict[tuple[TopicPartition, str], EntryRanges] = {}
    for one in unknown:
        found.setdefault((one.partition, one.reason), EntryRanges()).add(one.first, one.end)
    return found


def _in_words(
    partition: TopicPartition,
    reason: str,
    asked: Sequence[tuple[int, int]],
    gone: Sequence[tuple[int, int]],
    found: Recovery,
    entries: Entries,
) -> str:
    text = f"{_count(asked)} for {partition} ({reason}): records {ranges_in_words(asked)}"
    lost = list(found.lost_ranges.get(partition, EntryRanges()))
    if gone:
        text += f", of which {ranges_in_words(gone)} cannot be read"
    never_sent = EntryRanges()
    for first, end in lost:
        never_sent.add(first, end)
    for first, end in asked:
        never_sent.remove(first, end)
    if never_sent:
        text += f"; records {ranges_in_words(list(never_sent))}, which were not sent, cannot be read either"
    settled_end = min(entries.settled_end(partition), lost[0][0] if lost else asked[0][0])
    return text + (f"; those before {settled_end} are settled" if settled_end else "")


def _cure(damages: list[str], lost: bool, *, is_untouched: bool) -> str:
    if not damages or not is_untouched:
        return ""
    otherwise = "what cannot be read is lost. If there is no copy:" if lost else "you have to decide:"
    return f"{_shortened(damages, 'files')}. Put that back from a copy and start again; otherwise {otherwise}"


def ranges_in_words(ranges: Sequence[tuple[int, int]]) -> str:
    """`853 to 980, 990`."""
    named = [f"{first} to {end - 1}" if end - first > 1 else str(first) for first, end in ranges[:MAX_NAMED]]
    rest = ranges[MAX_NAMED:]
    return ", ".join(named) + (f" and {_count(rest)} more" if rest else "")


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(end - first for first, end in ranges)


def _shortened(named: list[str], kind: str) -> str:
    more = [f"and {len(named) - MAX_NAMED} more {kind}"] if len(named) > MAX_NAMED else []
    return "; ".join(named[:MAX_NAMED] + more)
