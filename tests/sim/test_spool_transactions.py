"""The spool with a transactional id, killed at any moment, on a disk that fails, with leaders and a coordinator in
trouble, and after outages in which brokers forget everything: each accepted record is committed once, in order.

`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.sim.producer_world import TOPIC
from tests.sim.random_weather import CALM, TROUBLE
from tests.sim.spool_transaction_world import (
    SpoolTransactionWorld,
    every_accepted_record_is_committed_or_reported,
    nothing_is_committed_twice_or_out_of_order,
    only_what_a_leader_refused_is_given_up,
    what_was_told_is_true,
)
from tests.sim.spool_world import the_spool_is_empty
from tests.sim.test_spooled_producer import DEATHS
from tests.support.sizes import IS_SOAK

STEPS = 120
Action = Callable[[SpoolTransactionWorld, random.Random], object]
COORDINATOR_REFUSALS = (7, 14, 15, 16, 51)
COORDINATOR_APIS = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)


def _refuse(world: SpoolTransactionWorld, chance: random.Random) -> None:
    world.cluster.refuse(chance.choice(COORDINATOR_APIS), chance.choice(COORDINATOR_REFUSALS))


MARKERS: list[tuple[int, Action]] = [
    (20, lambda world, _: world.cluster.write_markers(1)),
    (20, lambda world, _: world.pass_time(50, healthy=True)),
]
COORDINATOR_TROUBLE: list[tuple[int, Action]] = [
    (
        4,
        lambda world, chance: world.cluster.refuse(
            chance.choice(COORDINATOR_APIS), chance.choice(COORDINATOR_REFUSALS)
        ),
    ),
    (1, lambda world, _: world.cluster.crash_coordinator()),
    (1, lambda world, _: world.cluster.write_markers_unheard()),
    (1, lambda world, chance: world.cluster.move_coordinator(chance.randrange(3))),
    (2, lambda world, _: world.outage()),
]


def seeds() -> range:
    first, _, end = os.environ.get("ONCELOG_SIM_SEEDS", "0:12" if IS_SOAK else "0:6").partition(":")
    return range(int(first), int(end))


def play(world: SpoolTransactionWorld, chance: random.Random, *weather: list[tuple[int, Action]]) -> None:
    actions = [action for kind in weather for action in kind]
    for _, action in chance.choices(actions, [weight for weight, _ in actions], k=STEPS):
        world.survive(lambda action=action: action(world, chance))  # type: ignore[misc]
        nothing_is_committed_twice_or_out_of_order(world)


def finish(world: SpoolTransactionWorld) -> None:
    for _ in range(3):  # a crash that was planned, and a late request that takes the id over, may come first
        world.survive(world.finish)
    nothing_is_committed_twice_or_out_of_order(world)
    every_accepted_record_is_committed_or_reported(world)
    only_what_a_leader_refused_is_given_up(world)
    what_was_told_is_true(world)
    the_spool_is_empty(world)


@pytest.mark.parametrize("is_durable", [False, True], ids=["none", "fsync"])
@pytest.mark.parametrize("trouble", [[], [*TROUBLE, *COORDINATOR_TROUBLE]], ids=["calm", "trouble"])
def test_killed_at_any_moment(trouble: list[tuple[int, Action]], is_durable: bool) -> None:
    lives = accepted = delivered = 0
    for seed in seeds():
        chance = random.Random(seed)
        world = SpoolTransactionWorld(
            protocol=chance.choice((1, 2, 2)), is_durable=is_durable, max_message_bytes=chance.choice((1_000, 260))
        )
        try:
            play(world, chance, CALM, MARKERS, DEATHS, trouble)  # type: ignore[arg-type]
            finish(world)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        lives += world.lives
        accepted += len(world.accepted)
        delivered += sum(sent.is_delivered for sent in world.accepted)
    assert lives > 5 * len(seeds())
    assert accepted > 30 * len(seeds())
    assert delivered > 2 * len(seeds())


def until_on_its_way(world: SpoolTransactionWorld) -> None:
    for _ in range(200):
        world.pass_time(1)
        world.answer(0)
        if world.sender.is_in_flight():
            return
        serve_all(world)
    raise AssertionError("nothing is ever sent")


def serve_all(world: SpoolTransactionWorld) -> None:
    for index in range(len(world.lines)):
        world.serve(index)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("when", ["idle", "in flight", "stored"])
def test_an_outage_of_any_length_is_survived_by_the_same_process(when: str, protocol: int) -> None:
    """The transaction has timed out meanwhile, the producer's id and the transactional id are forgotten."""
    world = SpoolTransactionWorld(protocol=protocol)
    world.pass_time(500, healthy=True)
    assert world.send(0)
    world.pass_time(500, healthy=True)
    assert world.accepted[0].is_delivered
    if when != "idle":
        world.send(1)
        world.send(2)
        until_on_its_way(world)
    if when == "stored":
        serve_all(world)
    world.outage()
    assert world.send(0)
    finish(world)
    assert world.lives == 1
    assert all(sent.is_delivered for sent in world.accepted)


def test_a_partition_without_a_leader_does_not_hold_up_transactions() -> None:
    world = SpoolTransactionWorld()
    world.pass_time(500, healthy=True)
    world.stop_node(1)
    world.pass_time(2_000, healthy=True)
    assert world.send(1)
    assert world.send(0)
    world.pass_time(2_000, healthy=True)
    assert [sent.is_delivered for sent in world.accepted] == [False, True]
    finish(world)
    assert [sent.is_delivered for sent in world.accepted] == [True, True]
    assert world.lives == 1


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_record_that_no_broker_takes_does_not_take_others_with_it(protocol: int) -> None:
    """The one behind it is in its transaction and still lingers, so it is never sent there: it did nothing wrong."""
    world = SpoolTransactionWorld(protocol=protocol, max_message_bytes=260)
    world.pass_time(500, healthy=True)
    world.send(0)
    while not world.accepted[0].is_delivered:
        world.pass_time(1, healthy=True)
    world.send(0, value_bytes=400)
    world.send(0)
    finish(world)
    assert [sent.is_delivered for sent in world.accepted] == [True, False, True]


def test_a_topic_that_is_forbidden_fails_its_own_records_alone() -> None:
    """By protocol 1 the coordinator refuses all partitions of a request, and names the one that is the reason."""
    world = SpoolTransactionWorld(protocol=1)
    world.pass_time(500, healthy=True)
    world.cluster.forbidden.add(TopicPartition(TOPIC, 1))
    world.send(1)
    world.send(0)
    world.survive(world.finish)
    the_spool_is_empty(world)
    assert [sent.is_delivered for sent in world.accepted] == [False, True]
    assert world.given_up == {(TopicPartition(TOPIC, 1), 0)}
    assert world.cluster.refused_to_add == 1
