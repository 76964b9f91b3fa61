"""Groups of whole consumers through random trouble: nothing is skipped, nobody reads what is another's.

`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.membership.model_coordinator import GROUP_APIS
from tests.sim.group_member import Member
from tests.sim.group_world import GroupWorld
from tests.support.sizes import IS_SOAK

PARTITIONS = 4
MAX_MEMBERS = 4
STEPS = 80
STYLES = ("auto", "manual", "iterating")
KINDS: dict[str, dict[str, Any]] = {
    "range": {},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {"group_protocol": "consumer"},
}
Action = Callable[[GroupWorld, random.Random], object]


def seeds(few: str = "0:6" if IS_SOAK else "0:3") -> range:
    first, _, end = os.environ.get("ONCELOG_SIM_SEEDS", few).partition(":")
    return range(int(first), int(end or int(first) + 1))


def _some(world: GroupWorld, chance: random.Random) -> Member:
    return chance.choice(world.staying)


def _freeze(world: GroupWorld, chance: random.Random) -> None:
    """Longer than a session, sometimes: then the group goes on without it, and it does not know."""
    _some(world, chance).frozen_until_ms = world.now_ms + chance.choice((100, 900, 4_000, 7_000))


def _die(world: GroupWorld, chance: random.Random) -> None:
    if len(world.staying) > 1:
        _some(world, chance).die()


def _leave(world: GroupWorld, chance: random.Random) -> None:
    if len(world.staying) > 1:
        _some(world, chance).is_leaving = True


def _append(world: GroupWorld, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        world.append(chance.randrange(PARTITIONS), chance.choice((1, 3, 12)))


def _lose(world: GroupWorld, chance: random.Random) -> None:
    world.cluster.lose_answers(chance.choice(GROUP_APIS), chance.randint(1, 2))


CALM: list[tuple[int, Action]] = [
    (30, _append),
    (30, lambda world, chance: world.pass_time(chance.choice((5, 50, 300, 1_000)))),
]
TROUBLE: list[tuple[int, Action]] = [
    (8, lambda world, chance: _some(world, chance).cut()),
    (6, _lose),
    (4, _freeze),
    (3, _die),
    (3, lambda world, _: world.cluster.crash(world.now_ms)),
    (2, lambda world, _: world.cluster.move(world.now_ms)),
    (1, lambda world, chance: world.jump(chance.choice((500, 4_000, 20_000)))),
]
COMING_AND_GOING: list[tuple[int, Action]] = [(4, _leave)]


def play(seed: int, kind: str, *weather: list[tuple[int, Action]]) -> GroupWorld:
    chance = random.Random(f"{kind} {seed}")
    world = GroupWorld(PARTITIONS, chance)

    def join(world: GroupWorld, chance: random.Random) -> None:
        if len(world.alive) < MAX_MEMBERS:
            world.join(chance.choice(STYLES), **KINDS[kind])

    actions = [*(action for part in weather for action in part), (6, join)]
    weights = [weight for weight, _ in actions]
    try:
        join(world, chance)
        for _, action in chance.choices(actions, weights, k=STEPS):
            action(world, chance)
        world.finish()
    except BaseException as error:
        error.add_note(f"seed {seed} of {kind}: replay it with ONCELOG_SIM_SEEDS={seed}")
        raise
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_through_any_trouble_every_record_is_handed_out_in_order_and_offsets_follow(kind: str) -> None:
    worlds = [play(seed, kind, CALM, TROUBLE, COMING_AND_GOING) for seed in seeds()]
    assert sum(sum(map(len, world.handed.values())) for world in worlds) > 100 * len(worlds)


@pytest.mark.parametrize("kind", KINDS)
def test_without_trouble_coming_and_going_repeats_nothing(kind: str) -> None:
    for seed in seeds():
        world = play(seed, kind, CALM, COMING_AND_GOING)
        assert world.repeated == 0, f"seed {seed} of {kind}: {world.repeated} records came again"
