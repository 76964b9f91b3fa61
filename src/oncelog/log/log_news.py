"""Which logs of a data directory have something for the housekeeping to do: what nobody touches costs nothing.

Holds the names and no rule. A log enters when it changes or takes files out of use, and leaves when it is durable, or
has no file left to be removed; who looks goes through the oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.log.partition_log import PartitionLog


@dataclass(slots=True)
class LogNews:
    changed: dict[PartitionLog, None] = field(default_factory=dict)
    removing: dict[PartitionLog, None] = field(default_factory=dict)

    def forget(self, log: PartitionLog) -> None:
        self.changed.pop(log, None)
        self.removing.pop(log, None)
