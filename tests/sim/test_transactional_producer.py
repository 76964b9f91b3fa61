"""A transactional producer in any weather: each of its transactions is seen as a whole, once, or not at all, and as its
user was told; a zombie never adds to what its successor commits.

`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import os
import random

import pytest

from oncelog.client.transaction.command import Kind
from oncelog.client.transaction_errors import TransactionFailed
from oncelog.wire.api import ApiKey
from tests.sim.producer_world import PARTITIONS, TOPIC
from tests.sim.random_weather import CALM, TROUBLE, Action, play
from tests.sim.transaction_cluster import TransactionCluster
from tests.sim.transaction_world import (
    TransactionWorld,
    all_or_nothing,
    everything_is_decided,
    offsets_go_with_their_records,
    order_is_kept,
    visible,
)

FIRST_SEED, END_SEED = (int(one) for one in os.environ.get("ONCELOG_SIM_SEEDS", "0:24").split(":"))
SEEDS = range(FIRST_SEED, END_SEED)
STEPS = 150
COORDINATOR_REFUSALS = (7, 14, 15, 16, 51)
TRANSACTION_TIMEOUT_MS = 60_000

both_protocols = pytest.mark.parametrize("protocol", [1, 2])


def _end(world: TransactionWorld, chance: random.Random) -> None:
    world.end(chance.choice((Kind.COMMIT, Kind.COMMIT, Kind.COMMIT, Kind.ABORT)))


def _refuse(world: TransactionWorld, chance: random.Random) -> None:
    apis = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)
    api_key = chance.choice((*apis, ApiKey.TXN_OFFSET_COMMIT))
    world.cluster.refuse(api_key, chance.choice(COORDINATOR_REFUSALS))


TRANSACTIONS: list[tuple[int, Action]] = [
    (40, lambda world, _: world.step()),  # type: ignore[attr-defined]
    (20, _end),  # type: ignore[list-item]
    (6, lambda world, chance: world.commit_offset(chance.randrange(1_000))),  # type: ignore[attr-defined]
    (12, lambda world, _: world.cluster.write_markers(1)),  # type: ignore[attr-defined]
    (12, lambda world, _: world.pass_time(30, healthy=True)),
]
COORDINATOR_TROUBLE: list[tuple[int, Action]] = [
    (4, _refuse),  # type: ignore[list-item]
    (1, lambda world, _: world.cluster.crash_coordinator()),  # type: ignore[attr-defined]
    (1, lambda world, _: world.cluster.write_markers_unheard()),  # type: ignore[attr-defined]
    (1, lambda world, chance: world.cluster.move_coordinator(chance.randrange(3))),  # type: ignore[attr-defined]
]


def assert_promises(*worlds: TransactionWorld) -> None:
    cluster = worlds[0].cluster
    cluster.tick(worlds[0].now_ms + 2 * TRANSACTION_TIMEOUT_MS)  # what nobody ended is aborted
    cluster.write_markers()
    everything_is_decided(cluster)
    assert cluster.open_transactions == 0
    assert not cluster.complaints
    for world in worlds:
        all_or_nothing(world)
        order_is_kept(world)


@both_protocols
@pytest.mark.parametrize("seed", SEEDS)
def test_in_any_weather(seed: int, protocol: int) -> None:
    chance = random.Random(seed)
    world = TransactionWorld(protocol=protocol, jitter=chance.random)
    world.requests_arrive_late = protocol == 2  # a request that comes very late is protocol 1's known weakness
    weather = (CALM, TRANSACTIONS) if seed % 3 == 0 else (CALM, TRANSACTIONS, TROUBLE, COORDINATOR_TROUBLE)
    play(world, chance, STEPS, *weather)
    world.finish()
    assert_promises(world)
    offsets_go_with_their_records(world)
    assert any(visible(world.cluster).values()) or world.fatal is not None


@both_protocols
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 2])
def test_a_zombie_beside_its_successor(seed: int, protocol: int) -> None:
    chance = random.Random(seed)
    zombie = TransactionWorld(protocol=protocol, jitter=chance.random, name="zombie ")
    zombie.requests_arrive_late = protocol == 2
    play(zombie, chance, STEPS // 2, CALM, TRANSACTIONS)
    heir = zombie.successor("heir ")
    for _ in range(20):
        play(chance.choice((zombie, heir, heir)), chance, 5, CALM, TRANSACTIONS)
        zombie.now_ms = heir.now_ms = max(zombie.now_ms, heir.now_ms)
    heir.finish()
    zombie.now_ms = heir.now_ms
    zombie.heal()
    for _ in range(10):  # whatever it tries, it is told
        zombie.step()
        zombie.send(chance.randrange(PARTITIONS))
        zombie.end(Kind.COMMIT)
        zombie.pass_time(500, healthy=True)
    assert heir.fatal is None
    assert isinstance(zombie.fatal, TransactionFailed)
    assert_promises(zombie, heir)


@both_protocols
def test_what_is_too_large_while_its_transaction_is_aborted_does_not_join_the_next(protocol: int) -> None:
    cluster = TransactionCluster({TOPIC: PARTITIONS}, protocol=protocol, max_message_bytes=200)
    world = TransactionWorld(cluster=cluster)
    while not world.is_open:
        world.pass_time(50, healthy=True)
        world.step()
    for _ in range(8):
        assert world.send(0)
    for _ in range(10):  # until the batch is on its way
        world.pass_time(5)
        if world.core.is_in_flight():
            break
        world.settle_down()
    world.end(Kind.ABORT)
    world.finish()
    assert_promises(world)
    assert world.history[0].outcome is Kind.ABORT
