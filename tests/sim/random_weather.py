"""Everything that may happen to a producer, by weight, played from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from oncelog.wire.api import ApiKey
from tests.sim.model_cluster import FINAL_REFUSALS
from tests.sim.producer_world import (
    ID_REFUSALS,
    LATE_FAILURES,
    METADATA_REFUSALS,
    PARTITIONS,
    REFUSALS,
    ProducerWorld,
)

Action = Callable[[ProducerWorld, random.Random], object]

NODES = 3
LINES = 4


def _send_some(world: ProducerWorld, chance: random.Random) -> None:
    partition = chance.randrange(PARTITIONS)
    for _ in range(chance.randint(1, 12)):
        world.send(partition, chance.choice((20, 20, 20, 90, 150)))


def _serve_some(world: ProducerWorld, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 5)):
        world.serve(chance.randrange(LINES))


def _answer_some(world: ProducerWorld, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 5)):
        world.answer(chance.randrange(LINES))


def _deliver_again(world: ProducerWorld, chance: random.Random) -> None:
    if world.cluster.stored_requests:
        world.cluster.deliver_again(-1 - chance.randrange(min(20, len(world.cluster.stored_requests))))


def _throttle(world: ProducerWorld, chance: random.Random) -> None:
    world.cluster.throttle_ms = chance.choice((0, 0, 30, 300))


CALM: list[tuple[int, Action]] = [
    (30, _send_some),
    (20, _serve_some),
    (20, _answer_some),
    (10, lambda world, _: world.settle_down()),
    (20, lambda world, chance: world.pass_time(chance.choice((1, 6, 30)))),
    (5, lambda world, chance: world.set_flushing(chance.random() < 0.5)),
]
TROUBLE: list[tuple[int, Action]] = [
    (4, lambda world, chance: world.pass_time(chance.choice((120, 450, 1_000)))),
    (6, lambda world, chance: world.cut(chance.randrange(LINES), chance.random() < 0.5)),
    (2, lambda world, chance: world.stall(chance.randrange(LINES))),
    (1, lambda world, chance: world.stop_node(chance.randrange(NODES))),
    (3, lambda world, _: world.start_node()),
    (
        4,
        lambda world, chance: world.change_leader(
            chance.randrange(PARTITIONS),
            chance.randrange(NODES),
            keep_unreplicated=chance.random() < 0.5,
            published=chance.random() < 0.7,
        ),
    ),
    (4, lambda world, _: world.cluster.publish()),
    (6, lambda world, chance: world.refuse(chance.randrange(PARTITIONS), chance.choice(REFUSALS))),
    (6, lambda world, chance: world.fail_after_append(chance.randrange(PARTITIONS), chance.choice(LATE_FAILURES))),
    (1, lambda world, chance: world.refuse(chance.randrange(PARTITIONS), chance.choice(FINAL_REFUSALS))),
    (1, lambda world, chance: world.cluster.refuse(ApiKey.METADATA, chance.choice(METADATA_REFUSALS))),
    (1, lambda world, chance: world.cluster.refuse(ApiKey.INIT_PRODUCER_ID, chance.choice(ID_REFUSALS))),
    (6, lambda world, chance: world.deliver_straggler(chance.randrange(LINES))),
    (1, lambda world, chance: world.lose_straggler(chance.randrange(LINES))),
    (2, _throttle),
]
REPEATS: list[tuple[int, Action]] = [(4, _deliver_again)]
"""A network that doubles what it carries, which TCP does not."""


def play(world: ProducerWorld, chance: random.Random, steps: int, *weather: list[tuple[int, Action]]) -> None:
    actions = [action for kind in weather for action in kind]
    weights = [weight for weight, _ in actions]
    for _, action in chance.choices(actions, weights, k=steps):
        action(world, chance)
