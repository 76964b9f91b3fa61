"""The states of a transactional id, and which may follow which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """Numbered as the log has them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As Kafka's tools show it: `PrepareCommit`."""
        return _LABELS[self]


_LABELS: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}

STATES_BY_LABEL: Final = {label: state for state, label in _LABELS.items()}

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is certain, and not yet in every partition."""

COMPLETED: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

AT_REST: Final = COMPLETED | {State.EMPTY}
"""No transaction is open: a new one may begin, and the id may expire."""

TRANSITIONS: Final = frozenset(
    {(before, after) for before in AT_REST for after in (State.EMPTY, State.ONGOING, State.DEAD)}
    | {
        (State.ONGOING, State.ONGOING),
        (State.ONGOING, State.PREPARE_COMMIT),
        (State.ONGOING, State.PREPARE_ABORT),
        (State.ONGOING, State.PREPARE_EPOCH_FENCE),
        (State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT),
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
        (State.PREPARE_ABORT, State.COMPLETE_ABORT),
    }
    # Protocol 2 begins a transaction without asking: an abort may come before anything was added.
    | {(before, State.PREPARE_ABORT) for before in AT_REST}
)


class IllegalTransition(AssertionError):
    """A bug of the coordinator: it was about to leave the table above."""


def check_transition(before: State, after: State) -> None:
    if (before, after) not in TRANSITIONS:
        raise IllegalTransition(f"{before.label} is never followed by {after.label}")
