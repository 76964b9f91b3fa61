"""Valid histories are clean, whatever happened in them; each violation that is planted in one is found, and no other."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.audit.history.checker import check
from oncelog.audit.history.model import Operation, Outcome
from oncelog.audit.history.report import Kind
from tests.audit.history.plants import PLANTS, transactions
from tests.audit.history.world import World

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
