"""Groups of real members and a real coordinator through random trouble, from a seed; a failure names it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.membership.group_world import (
    Reader,
    World,
    every_partition_is_read,
    offsets_never_go_back,
)
from tests.support.sizes import IS_SOAK

TOPICS = {"t": 5, "u": 3}
MAX_READERS = 5
STEPS = 60
Action = Callable[[World, random.Random], object]


def _some(world: World, chance: random.Random) -> Reader:
    return chance.choice(_staying(world))


def _staying(world: World) -> list[Reader]:
    return [reader for reader in world.alive if not reader.is_leaving]


def _freeze(world: World, chance: random.Random) -> None:
    """Longer than a session, sometimes: then the group goes on without it, and it does not know."""
    reader = _some(world, chance)
    reader.frozen_until_ms = world.now_ms + chance.choice((100, 900, 4_000))
    world.at(reader.frozen_until_ms, reader.run)


def _stop_polling(world: World, chance: random.Random) -> None:
    """Longer than max.poll.interval.ms, sometimes."""
    reader = _some(world, chance)
    reader.is_polling = False

    def resume() -> None:
        reader.is_polling = True

    world.at(world.now_ms + chance.choice((500, 7_000)), resume)


def _die(world: World, chance: random.Random) -> None:
    if len(_staying(world)) > 1:
        _some(world, chance).die()


def _leave(world: World, chance: random.Random) -> None:
    if len(_staying(world)) > 1:
        reader = _some(world, chance)
        reader.member.leave(world.now_ms, "bye")
        reader.is_leaving = True

        def gone() -> None:
            if reader.member.is_gone:
                reader.die()
            else:
                world.at(world.now_ms + 10, gone)

        gone()


def _grow(world: World, chance: random.Random) -> None:
    name = chance.choice(sorted(TOPICS))
    if world.brokers.topics.counts[name] < 9:
        world.brokers.topics.counts[name] += 1
        world.brokers.topics_changed(world.now_ms)


TROUBLE: list[tuple[int, Action]] = [
    (30, lambda world, chance: world.pass_time(chance.choice((5, 50, 300, 1_000)))),
    (8, lambda world, chance: _some(world, chance).cut()),
    (4, _freeze),
    (2, _stop_polling),
    (3, _die),
    (3, _leave),
    (2, lambda world, _: world.brokers.crash(world.now_ms)),
    (2, lambda world, _: world.brokers.move(world.now_ms)),
    (2, _grow),
    (2, lambda world, chance: _some(world, chance).member.ask_rebalance("the user wants it")),
]

KINDS: dict[str, list[dict[str, Any]]] = {
    "eager": [{"strategy": ("range", "cooperative-sticky")}],
    "sticky": [{"strategy": ("sticky",)}],
    "cooperative": [{"strategy": ("cooperative-sticky",)}],
    "kip848": [{"protocol": "consumer"}],
    "mixed": [{"strategy": ("cooperative-sticky",)}, {"protocol": "consumer"}],
}
"""What the members are, in turn."""


@pytest.mark.parametrize("seed", range(6 if IS_SOAK else 3))
@pytest.mark.parametrize("kind", KINDS)
def test_through_any_trouble_partitions_have_one_owner_and_the_group_converges(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind} {seed}")
    world = World(TOPICS, seed=seed)

    def join(world: World, _: random.Random) -> None:
        if len(world.alive) < MAX_READERS:
            world.add(*TOPICS, **KINDS[kind][len(world.readers) % len(KINDS[kind])])

    join(world, chance)
    actions = [*TROUBLE, (5, join)]
    for _ in range(STEPS):
        [action] = chance.choices([one for _, one in actions], [weight for weight, _ in actions])
        action(world, chance)
    world.pass_time(8_000)  # all are awake again, and those who died are given up
    world.until(world.is_settled)
    world.pass_time(1_000)
    world.until(world.is_settled)
    every_partition_is_read(world, *TOPICS)
    offsets_never_go_back(world)
    assert world.failures == []
