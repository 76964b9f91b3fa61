"""Whose transactions a spool's records are sent in: one small file in its folder.

    transactional.json    {"transactional_id": ..., "spool_id": ..., "topic": ..., "partition": ..., "life": ...,
                           "crc32c": ...}

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
from oncelog.records.kernel import crc32c
from oncelog.types import TopicPartition

FILE_NAME: Final = "transactional.json"
ENTRIES_PER_LIFE: Final = 1 << 32
_WHAT_TO_DO = (
    "it tells in whose transactions the records beside it were sent. Restore it, or, if they may be stored twice,"
    " remove it and the journal"
)


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
        return json.dumps(asdict(self) | {"crc32c": self._crc()}).encode()

    def _crc(self) -> int:
        return crc32c(json.dumps(asdict(self)).encode())

    @classmethod
    def decode(cls, data: bytes) -> SpoolIdentity:
        """Raises ValueError or TypeError. The first format had no checksum."""
        fields = json.loads(data)
        crc = fields.pop("crc32c", None)
        identity = cls(**fields)
        if crc is not None and crc != identity._crc():
            raise ValueError("its checksum is wrong")
        return identity


def decode_identity(data: bytes, path: str) -> SpoolIdentity:
    try:
        return SpoolIdentity.decode(data)
    except (ValueError, TypeError, AttributeError) as error:
        raise SpoolError(f"{path} cannot be read ({error}): {_WHAT_TO_DO}") from None


def check_life(identity: SpoolIdentity | None, life: int, path: str) -> None:
    """`life` is what the journal says that the file has. The file is written first, so it may be ahead. Raises
    SpoolError."""
    if life >= 0 and identity is None:
        raise SpoolError(f"{path} is missing: {_WHAT_TO_DO}")
    if identity is not None and identity.life < life:
        raise SpoolError(f"{path} is an older copy (life {identity.life}, the journal knows {life}): {_WHAT_TO_DO}")
