"""The life of a classic member: its phases, and which may follow which."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    OUTSIDE = auto()
    REVOKING = auto()
    """Before a JoinGroup: the user gives up what must be given up."""
    JOINING = auto()
    """JoinGroup is due, or under way."""
    ASSIGNING = auto()
    """We lead, and wait for the metadata of all topics of the group."""
    SYNCING = auto()
    """SyncGroup is due, or under way."""
    SETTLING = auto()
    """After a SyncGroup: the user gives up what moves to others."""
    STABLE = auto()
    LEAVING = auto()
    """The user gives up everything; LeaveGroup is due, or under way."""


TRANSITIONS = {
    (Phase.OUTSIDE, Phase.JOINING),
    (Phase.STABLE, Phase.REVOKING),
    (Phase.REVOKING, Phase.JOINING),
    (Phase.JOINING, Phase.ASSIGNING),
    (Phase.JOINING, Phase.SYNCING),
    (Phase.ASSIGNING, Phase.JOINING),
    (Phase.ASSIGNING, Phase.SYNCING),
    (Phase.SYNCING, Phase.JOINING),
    (Phase.SYNCING, Phase.SETTLING),
    (Phase.SETTLING, Phase.STABLE),
    *((phase, Phase.LEAVING) for phase in Phase),
    *((phase, Phase.OUTSIDE) for phase in Phase),
}
BEATING = (Phase.REVOKING, Phase.ASSIGNING, Phase.SYNCING, Phase.SETTLING, Phase.STABLE)
SEATED = (Phase.REVOKING, Phase.SETTLING, Phase.STABLE)
"""Where the coordinator knows us by the generation that our assignment is from."""
