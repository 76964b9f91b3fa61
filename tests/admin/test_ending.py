"""What is concluded from the coordinator's answers: the whole table, and nothing where there is nothing to conclude."""

from __future__ import annotations

import pytest

from oncelog.admin import TransactionDescription, TransactionState
from oncelog.admin.ending import UNCLEAR, Ended, EndedOtherwise, Ending, Next, NothingToEnd, OutcomeForgotten
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.errors import NONE, KafkaError, NotCoordinator, TransactionAbortable, TransactionalIdAuthorizationFailed

PREPARED = PreparedTransaction("billing", 7, 3)
COMMIT, ABORT = Ending(PREPARED, Ended.COMMITTED), Ending(PREPARED, Ended.ABORTED)
OUTCOMES = {
    "PrepareCommit": Ended.COMMITTED,
    "CompleteCommit": Ended.COMMITTED,
    "PrepareAbort": Ended.ABORTED,
    "CompleteAbort": Ended.ABORTED,
}


def found(state: str, *, producer_id: int = 7, epoch: int = 3) -> TransactionDescription:
    return TransactionDescription("billing", 1, state, producer_id, epoch, 60_000, None, ())


def conclusion(ending: Ending, place: TransactionDescription | None, *, by_protocol_2: bool) -> object:
    try:
        return ending.after_look(place, by_protocol_2=by_protocol_2)
    except EndedOtherwise as error:
        return error.outcome
    except (NothingToEnd, OutcomeForgotten) as error:
        return type(error) if error.described is place else error.described


@pytest.mark.parametrize("ending", [COMMIT, ABORT])
@pytest.mark.parametrize("by_protocol_2", [False, True])
@pytest.mark.parametrize("state", list(TransactionState))
def test_what_a_look_tells(ending: Ending, by_protocol_2: bool, state: str) -> None:
    def look(**place: int) -> object:
        return conclusion(ending, found(state, **place), by_protocol_2=by_protocol_2)

    outcome = OUTCOMES.get(state)
    if state == "Ongoing":
        assert look(epoch=3) is Next.END
    else:
        assert look(epoch=3) is (NothingToEnd if by_protocol_2 or outcome is None else outcome)
    assert look(epoch=4) is (outcome if by_protocol_2 and outcome is not None else OutcomeForgotten)
    assert look(epoch=5) is OutcomeForgotten
    assert look(producer_id=8, epoch=0) is OutcomeForgotten
    assert look(epoch=2) is NothingToEnd, "nobody was given this epoch"


@pytest.mark.parametrize("by_protocol_2", [False, True])
def test_an_id_that_nobody_knows_any_more(by_protocol_2: bool) -> None:
    assert conclusion(COMMIT, None, by_protocol_2=by_protocol_2) is OutcomeForgotten


def test_the_other_outcome_is_an_error_that_says_so() -> None:
    with pytest.raises(EndedOtherwise, match=r"'billing' \(producer 7, epoch 3\) is aborted already") as caught:
        COMMIT.after_look(found("CompleteAbort", epoch=4), by_protocol_2=True)
    assert (caught.value.outcome, caught.value.what_to_do) == (Ended.ABORTED, "give up")
    assert COMMIT.after_look(found("CompleteCommit", epoch=4), by_protocol_2=True) is Ended.COMMITTED


def test_what_answers_mean() -> None:
    assert (COMMIT.after_end(NONE), ABORT.after_end(NONE)) == (Ended.COMMITTED, Ended.ABORTED)
    assert {COMMIT.after_end(code) for code in UNCLEAR} == {Next.LOOK}


@pytest.mark.parametrize("error", [NotCoordinator, TransactionAbortable, TransactionalIdAuthorizationFailed])
def test_refusals_are_raised_by_name(error: type[KafkaError]) -> None:
    with pytest.raises(error, match="was not ended"):
        COMMIT.after_end(error.code)


def test_who_aborts_by_protocol_2_looks_first() -> None:
    assert ABORT.first(by_protocol_2=True) is Next.LOOK
    assert {COMMIT.first(by_protocol_2=True), COMMIT.first(by_protocol_2=False), ABORT.first(by_protocol_2=False)} == {
        Next.END
    }
