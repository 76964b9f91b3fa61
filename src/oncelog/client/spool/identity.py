"""Whose transactions a spool's records are sent in: one small file in its folder.

    transactional.json    {"transactional_id": ..., "spool_id": ..., "topic": ..., "partition": ..., "life": ...}

**While the file is there, whatever is not settled was sent in transactions of that id, or not at all**, and its
position lies in that partition. So the file is written before the first of these transactions, durably, and a folder
with records left is not opened by any other producer.

`spool_id` tells a folder from another one under the same transactional id: a new folder counts its records from 0
again, and must not skip them because an old one had sent as many. `life` grows with every process on the folder, and
each counts its records from a number of its own: numbers that were lost with the power are never given twice, so that a
position never speaks of another record than it did when it was written.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Final

from oncelog.client.spool.errors import SpoolError
from oncelog.types import TopicPartition

FILE_NAME: Final = "transactional.json"
ENTRIES_PER_LIFE: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class SpoolIdentity:
    transactional_id: str
    spool_id: str
    topic: str
    partition: int
    life: int = 0

    @property
    def place(self) -> TopicPartition:
        """Where its position is kept."""
        return TopicPartition(self.topic, self.partition)

    @property
    def first_entry(self) -> int:
        """From where this life counts."""
        return self.life * ENTRIES_PER_LIFE

    def is_of(self, transactional_id: str | None, topic: str) -> bool:
        return (self.transactional_id, self.topic) == (transactional_id, topic)

    def next_life(self) -> SpoolIdentity:
        return replace(self, life=self.life + 1)

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decode_identity(data: bytes, path: str) -> SpoolIdentity:
    try:
        return SpoolIdentity(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise SpoolError(
            f"{path} cannot be read ({error}): it tells in whose transactions the records beside it were sent. Restore"
            " it, or, if they may be stored twice, remove it"
        ) from None
