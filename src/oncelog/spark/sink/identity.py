"""Names: which transactional ids belong to a sink, and which driver holds its journal.

`{prefix}-driver` writes the journal; `{prefix}-{slot}` is a task's, `{prefix}-batch` that of a whole atomic batch, and
`...-salvage` that of its copy. No name of one prefix is a name of another.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WHOLE_BATCH: Final = -1
"""The slot of the one transaction of an atomic batch."""

SALVAGE: Final = "-salvage"


class Term(NamedTuple):
    """The producer that `{prefix}-driver` has now. Whoever takes the journal over gets a later one."""

    producer_id: int
    producer_epoch: int


def driver_id(prefix: str) -> str:
    return f"{prefix}-driver"


def slot_id(prefix: str, slot: int) -> str:
    return f"{prefix}-{'batch' if slot == WHOLE_BATCH else slot}"


def salvage_id(prefix: str, slot: int) -> str:
    """Not the slot's own id: a task that wakes late fences what has that one."""
    return slot_id(prefix, slot) + SALVAGE


def holds_output(prefix: str, transactional_id: str) -> bool:
    """Whether it is the id of a slot of this prefix, or of a copy: all but the driver's."""
    head, separator, slot = transactional_id.removesuffix(SALVAGE).rpartition("-")
    return bool(separator) and head == prefix and (slot == "batch" or (slot.isascii() and slot.isdigit()))
