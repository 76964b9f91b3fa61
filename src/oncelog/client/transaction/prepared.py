"""An open transaction as somebody else can end it: whoever holds this value, in whatever process."""

from __future__ import annotations

from typing import NamedTuple


class PreparedTransaction(NamedTuple):
    """All of its records are stored; neither committed nor aborted yet."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class SharedTransaction(NamedTuple):
    """A transaction that several producers write into, each to partitions that no other one writes to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    uses_protocol_2: bool
