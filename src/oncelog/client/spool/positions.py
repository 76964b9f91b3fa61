"""How far a spool is committed: a value that is stored in the same transaction as the records that it speaks of.

    key      the transactional id and the spool's own
    value    {"transactional_id": ..., "spool_id": ..., "committed": {topic: {partition: entry}}}

Of each partition all entries below that number are in committed transactions, or were settled before. Whether a
position counts is told by the marker that follows it in the log, as for every record of a transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.client.spool.identity import SpoolIdentity
from oncelog.records import kernel
from oncelog.records.batch import decode_records, read_control_marker
from oncelog.types import TopicPartition

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    ends: Ends

    def encode(self, identity: SpoolIdentity) -> tuple[bytes, bytes]:
        """Key and value."""
        committed: dict[str, dict[str, int]] = {}
        for (topic, partition), end in self.ends.items():
            committed.setdefault(topic, {})[str(partition)] = end
        name = {"transactional_id": identity.transactional_id, "spool_id": identity.spool_id}
        key = json.dumps(name, separators=(",", ":")).encode()
        return key, json.dumps({**name, "committed": committed}, separators=(",", ":")).encode()


def decode_position(value: bytes, identity: SpoolIdentity) -> Position | None:
    """None for what another spool, or somebody else, has written."""
    try:
        told = json.loads(value)
        if (told["transactional_id"], told["spool_id"]) != (identity.transactional_id, identity.spool_id):
            return None
        ends = {
            TopicPartition(topic, int(partition)): int(end)
            for topic, partitions in told["committed"].items()
            for partition, end in partitions.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Position(ends)


class PositionSearch:
    """Reads batches in the order of the log; `found` is the last position that was committed."""

    def __init__(self, identity: SpoolIdentity) -> None:
        self._identity = identity
        self._undecided: dict[int, Position] = {}
        """By producer id, until its marker comes."""
        self.found: Position | None = None

    def read(self, data: memoryview) -> int | None:
        """The whole batches at the front of `data`; the offset behind them, None if not even one is whole."""
        headers, _ = kernel.scan(data, 0, len(data), True)
        at = 0
        for header in headers:
            batch = data[at : at + header.size_bytes]
            if header.is_control:
                self._ended(header.producer_id, batch)
            elif header.is_transactional:
                self._wrote(header.producer_id, batch)
            at += header.size_bytes
        return headers[-1].next_offset if headers else None

    def _wrote(self, producer_id: int, batch: memoryview) -> None:
        for record in decode_records(batch):
            position = decode_position(record.value or b"", self._identity)
            if position is not None:
                self._undecided[producer_id] = position

    def _ended(self, producer_id: int, batch: memoryview) -> None:
        position = self._undecided.pop(producer_id, None)
        if position is not None and read_control_marker(batch).commit:
            self.found = position
