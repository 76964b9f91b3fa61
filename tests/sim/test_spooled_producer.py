"""The producer's core with a spool, killed at any moment, on a disk that fails and a cluster in trouble: what was
accepted is stored once and in order, or reported as failed.

`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.sim.random_weather import CALM, TROUBLE
from tests.sim.spool_world import (
    SpoolWorld,
    every_accepted_record_is_stored_or_reported,
    nothing_is_doubled_or_out_of_order,
    the_spool_is_empty,
)
from tests.support.sizes import IS_SOAK

STEPS = 120
Action = Callable[[SpoolWorld, random.Random], object]

DEATHS: list[tuple[int, Action]] = [
    (4, lambda world, chance: world.kill(requests_arrive=chance.random() < 0.5)),
    (4, lambda world, chance: world.kill(chance.random() < 0.5, power_seed=chance.randrange(10**6))),
    (4, lambda world, chance: world.crash_soon(chance.randrange(12), torn=chance.random() < 0.5)),
    (4, lambda world, chance: world.refuse_writes_soon(chance.randrange(12), torn=chance.random() < 0.5)),
]


def seeds() -> range:
    first, _, end = os.environ.get("ONCELOG_SIM_SEEDS", "0:60" if IS_SOAK else "0:25").partition(":")
    return range(int(first), int(end))


def play(world: SpoolWorld, chance: random.Random, *weather: list[tuple[int, Action]]) -> None:
    actions = [action for kind in weather for action in kind]
    for _, action in chance.choices(actions, [weight for weight, _ in actions], k=STEPS):
        world.survive(lambda action=action: action(world, chance))  # type: ignore[misc]
        nothing_is_doubled_or_out_of_order(world)


def finish(world: SpoolWorld) -> None:
    world.survive(world.finish)
    world.survive(world.finish)  # the crash that was planned may have come in the first one
    nothing_is_doubled_or_out_of_order(world)
    every_accepted_record_is_stored_or_reported(world)
    the_spool_is_empty(world)


@pytest.mark.parametrize("is_durable", [False, True], ids=["none", "fsync"])
@pytest.mark.parametrize("trouble", [[], TROUBLE], ids=["calm", "trouble"])
def test_killed_at_any_moment(trouble: list[tuple[int, Action]], is_durable: bool) -> None:
    lives = accepted = unknown = 0
    for seed in seeds():
        chance = random.Random(seed)
        world = SpoolWorld(is_durable=is_durable, max_message_bytes=chance.choice((1_000, 220)))
        try:
            play(world, chance, CALM, DEATHS, trouble)  # type: ignore[arg-type]
            finish(world)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        lives += world.lives
        accepted += len(world.accepted)
        unknown += world.when_unknown != "refuse"
    assert lives > 5 * len(seeds())
    assert accepted > 25 * len(seeds())
    assert unknown <= len(seeds()) // 50
