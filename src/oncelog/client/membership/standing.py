"""What an error of the coordinator says about a member's place in its classic group."""

from __future__ import annotations

from enum import Enum, auto

from oncelog import errors
from oncelog.errors import KafkaError


class Standing(Enum):
    UNCHANGED = auto()
    """The coordinator cannot say now; asked later, it may."""
    MOVED = auto()
    """Another broker is the coordinator."""
    REBALANCING = auto()
    """The group forms a new generation: join it."""
    OUTDATED = auto()
    """The group went on without us, and still knows our member id."""
    EXPELLED = auto()
    """We are no member; join as a new one."""
    FENCED = auto()
    """Another process joined with our `group.instance.id`: one of the two must end, and it is this one."""
    REFUSED = auto()
    """Nothing that this client can mend by itself."""


_STANDINGS: dict[type[KafkaError], Standing] = {
    errors.NotCoordinator: Standing.MOVED,
    errors.CoordinatorNotAvailable: Standing.MOVED,
    errors.RebalanceInProgress: Standing.REBALANCING,
    errors.IllegalGeneration: Standing.OUTDATED,
    errors.UnknownMemberId: Standing.EXPELLED,
    errors.FencedInstanceId: Standing.FENCED,
}


def standing_of(error: KafkaError) -> Standing:
    standing = _STANDINGS.get(type(error))
    if standing is not None:
        return standing
    return Standing.UNCHANGED if error.retriable else Standing.REFUSED
