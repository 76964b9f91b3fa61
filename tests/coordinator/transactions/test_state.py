from __future__ import annotations

import itertools

import pytest

from oncelog.coordinator.transactions.state import TRANSITIONS, IllegalTransition, State
from oncelog.coordinator.transactions.transaction import PROTOCOL_2, Transaction
from oncelog.types import TopicPartition

START = Transaction(5, 3, 1_000, State.EMPTY, last_update_ms=10)
STEPS = {
    State.EMPTY: lambda before: before.kept(1_000, 20),
    State.ONGOING: lambda before: before.joined([TopicPartition("t", 0)], PROTOCOL_2, 20),
    State.PREPARE_COMMIT: lambda before: before.prepared_and_raised(State.PREPARE_COMMIT, -1, 20),
    State.PREPARE_ABORT: lambda before: before.prepared_and_raised(State.PREPARE_ABORT, -1, 20),
    State.PREPARE_EPOCH_FENCE: lambda before: before.fenced(),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, STEPS)))
def test_only_what_the_table_knows_happens(before: State, after: State) -> None:
    transaction = START._replace(state=before)
    if (before, after) in TRANSITIONS:
        assert STEPS[after](transaction).state is after
    else:
        with pytest.raises(IllegalTransition):
            STEPS[after](transaction)
    assert transaction == START._replace(state=before)


@pytest.mark.parametrize("before", list(State))
def test_only_what_is_prepared_is_completed(before: State) -> None:
    transaction = START._replace(state=before)
    outcomes = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
    if before in outcomes:
        assert transaction.completed(20).state is outcomes[before]
    else:
        with pytest.raises(IllegalTransition):
            transaction.completed(20)


def test_states_are_named_as_kafka_does() -> None:
    assert [state.label for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
