"""Valid histories are clean, whatever happened in them; each violation planted in one is found, and no other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.audit.history.checker import HistoryUnusable, check
from oncelog.audit.history.model import Operation, Outcome, Records
from oncelog.audit.history.report import Kind
from tests.audit.history.plants import PLANTS, transactions
from tests.audit.history.world import OUTPUTS, World

MANY = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
chances = st.randoms(use_true_random=False)
steps = st.integers(0, 40)


def shuffled(operations: list[Operation], chance: random.Random) -> list[Operation]:
    """Processes in another order, each of them in its own."""
    processes = list(dict.fromkeys(operation.process for operation in operations))
    chance.shuffle(processes)
    return sorted(operations, key=lambda operation: processes.index(operation.process))


@MANY
@given(chances, steps)
def test_a_valid_history_is_clean(chance: random.Random, count: int) -> None:
    world = World(chance)
    world.run(count)
    world.drain()
    report = check(shuffled(world.operations, chance))
    assert report.is_clean, report.explain()
    assert not report.unseen
    assert report.tally.undecided == 0
    assert report.tally.committed == sum(
        len(transactions(world, outcome, visible=True)) for outcome in (Outcome.OK, Outcome.UNKNOWN)
    )
    assert report.tally.sent == len({value for one in world.operations for each in one.sends for value in each.values})


@MANY
@given(chances, steps)
def test_a_history_that_was_cut_off_is_clean(chance: random.Random, count: int) -> None:
    """What was not read yet is not lost."""
    world = World(chance)
    world.run(count)
    world.cut_off()
    report = check(shuffled(world.operations, chance))
    assert report.is_clean, report.explain()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_violation_is_found(name: str) -> None:
    plant, kinds = PLANTS[name]

    @MANY
    @given(chances, steps)
    def finds_it(chance: random.Random, count: int) -> None:
        world = World(chance)
        world.run(count)
        plant(world)
        report = check(shuffled(world.operations, chance))
        assert report.counts.keys() == kinds, report.explain()
        assert all(violation.count >= 1 and violation.examples for violation in report.violations)

    finds_it()


def test_every_kind_is_planted() -> None:
    assert set().union(*(kinds for _, kinds in PLANTS.values())) == set(Kind)


def test_a_torn_transaction_is_found_without_the_end() -> None:
    """A committed reader went past the hidden record; whether more will come does not matter."""
    torn = Operation(
        "processor", 1, 1, None, Outcome.UNKNOWN, True,
        sends=[Records(OUTPUTS[0], ["a"], [0]), Records(OUTPUTS[1], ["b"], [0])],
    )  # fmt: skip
    later = Operation("other", 1, 2, 3, Outcome.OK, sends=[Records(OUTPUTS[1], ["c"], [2])])
    sees_a = Operation("reader", 1, 4, 5, Outcome.OK, polls=[Records(OUTPUTS[0], ["a"], [0])])
    sees_c = Operation("reader", 2, 6, 7, Outcome.OK, polls=[Records(OUTPUTS[1], ["c"], [2])])
    assert check([torn, later, sees_a]).is_clean
    assert check([torn, later, sees_a, sees_c]).counts == {Kind.TORN_TRANSACTION: 1}
    glimpse = replace(sees_c, reads_committed=False)
    assert check([torn, later, sees_a, glimpse]).is_clean, "who sees what is open proves nothing of it"


def test_a_process_that_moved_may_go_back_and_leave_out() -> None:
    sent = Operation("writer", 1, 1, 2, Outcome.OK, sends=[Records(OUTPUTS[0], ["a", "b", "c"], [0, 1, 2])])
    whole = Operation("reader", 1, 3, 4, Outcome.OK, polls=[Records(OUTPUTS[0], ["a", "b", "c"], [0, 1, 2])])
    back = Operation("reader", 2, 5, 6, Outcome.OK, moved=[OUTPUTS[0]], polls=[Records(OUTPUTS[0], ["a"], [0])])
    on = Operation("reader", 3, 7, 8, Outcome.OK, moved=[OUTPUTS[0]], polls=[Records(OUTPUTS[0], ["c"], [2])])
    assert check([sent, whole, back, on]).is_clean
    stayed = [replace(back, moved=()), replace(on, moved=())]
    assert check([sent, whole, *stayed]).counts == {Kind.NONMONOTONIC_POLL: 1, Kind.POLL_SKIP: 1}


def test_committed_records_beyond_the_last_that_was_read_are_counted() -> None:
    sent = Operation("writer", 1, 1, 2, Outcome.OK, sends=[Records(OUTPUTS[0], ["a", "b", "c"], [0, 1, 2])])
    read = Operation("reader", 1, 3, 4, Outcome.OK, polls=[Records(OUTPUTS[0], ["a"], [0])])
    report = check([sent, read])
    assert report.is_clean
    assert report.unseen == {OUTPUTS[0]: 2}
    assert "out-0: 2 committed records were not read" in report.explain()


def test_a_value_that_is_sent_twice_makes_a_history_useless() -> None:
    sent = Operation("writer", 1, 1, 2, Outcome.OK, sends=[Records(OUTPUTS[0], ["a"], [0])])
    with pytest.raises(HistoryUnusable, match="operation 2 of writer sends a value to out-0 that was sent before"):
        check([sent, replace(sent, number=2)])
