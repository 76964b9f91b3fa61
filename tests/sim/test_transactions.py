"""Transactions of a whole broker, in memory: producers of both protocols, zombies, answers that are lost, requests that
come again, disks that are full, brokers that die in the midst of a write or lose their power.

What producers were told is held against what readers see when all has settled: a commit that was acknowledged is there,
all of it; what was aborted, or never asked to be committed, never is; no transaction stays open; offsets belong to what
was committed. `test_machine` (of the coordinator) goes deeper into one id; this one has the logs and the groups.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.sim.transacting_broker import PLACES, REMEMBERED, STORES, TIMEOUT_MS, World

CRASHES = [f"crash{operations}" for operations in range(6)]
FATES = st.sampled_from(["heard"] * 8 + ["lost", "lost", *CRASHES])
HASTY_FATES = FATES | st.just("hasty")
WHO = st.integers(0, 3)
TOMBSTONES_ARE_KEPT_MS = 2 * 24 * 3_600_000


class TransactionsMachine(RuleBasedStateMachine):
    world: World

    @initialize(is_durable=st.booleans())
    def begins(self, is_durable: bool) -> None:
        self.world = World(is_durable=is_durable)

    @rule(who=WHO, fate=FATES)
    def takes_the_place(self, who: int, fate: str) -> None:
        self.world.begin(self.world.processes[who], fate)

    @rule(who=WHO, places=st.lists(st.sampled_from(PLACES), max_size=4), offset=st.booleans(), commit=st.booleans())
    def transacts(self, who: int, places: list[tuple[str, int]], offset: bool, commit: bool) -> None:
        """A day without trouble."""
        process = self.world.processes[who]
        if process.must_begin:
            self.world.begin(process, "heard")
        for place in places:
            self.world.write(process, place, "heard")
        if offset:
            self.world.commit_offset(process, "heard")
        self.world.end(process, commit, "heard")

    @rule(who=WHO, place=st.sampled_from(PLACES), fate=HASTY_FATES)
    def writes(self, who: int, place: tuple[str, int], fate: str) -> None:
        self.world.write(self.world.processes[who], place, fate)

    @rule(who=WHO, fate=HASTY_FATES)
    def commits_an_offset(self, who: int, fate: str) -> None:
        self.world.commit_offset(self.world.processes[who], fate)

    @rule(who=WHO, commit=st.sampled_from([True, True, False]), fate=HASTY_FATES)
    def ends(self, who: int, commit: bool, fate: str) -> None:
        self.world.end(self.world.processes[who], commit, fate)

    @rule(who=WHO, places=st.lists(st.sampled_from(PLACES), min_size=1, max_size=3), fate=HASTY_FATES)
    def asks_and_dies(self, who: int, places: list[tuple[str, int]], fate: str) -> None:
        """What is asked of the broker last, nobody hears of."""
        process = self.world.processes[who]
        if process.must_begin:
            self.world.begin(process, "heard")
        for place in places:
            self.world.write(process, place, "heard")
        self.world.end(process, True, fate if fate != "heard" else "lost")
        self.world.begin(process, "heard")

    @rule(who=WHO, fate=FATES)
    def goes_on(self, who: int, fate: str) -> None:
        self.world.go_on(self.world.processes[who], fate)

    @precondition(lambda self: self.world.zombies)
    @rule(which=st.integers(0, 5), act=st.integers(0, 4), place=st.sampled_from(PLACES))
    def a_zombie_wakes(self, which: int, act: int, place: tuple[str, int]) -> None:
        world = self.world
        zombie = world.zombies[which % len(world.zombies)]
        acts = (
            lambda: world.write(zombie, place, "heard"),
            lambda: world.commit_offset(zombie, "heard"),
            lambda: world.end(zombie, True, "heard"),
            lambda: world.end(zombie, False, "heard"),
            lambda: world.go_on(zombie, "heard"),
        )
        acts[act]()

    @precondition(lambda self: self.world.network)
    @rule(which=st.integers(0, REMEMBERED - 1))
    def comes_again(self, which: int) -> None:
        self.world.deliver_again(self.world.network[which % len(self.world.network)])

    @rule(stores=st.sets(st.sampled_from(STORES), max_size=3))
    def the_disk_is_full(self, stores: set[str]) -> None:
        """Or it is not, any more."""
        self.world.disk.full = stores

    @precondition(lambda self: self.world.is_durable)
    @rule(store=st.sampled_from(STORES))
    def a_disk_breaks(self, store: str) -> None:
        """Until the broker is started again."""
        self.world.disk.broken.add(store)

    @rule(ms=st.sampled_from([1, 200, 6_000, TIMEOUT_MS]))
    def passes_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(after_ms=st.sampled_from([0, TOMBSTONES_ARE_KEPT_MS]))
    def is_compacted(self, after_ms: int) -> None:
        self.world.compact(after_ms)

    @rule()
    def is_killed(self) -> None:
        self.world.replays_are_the_same()
        self.world.restart()

    @precondition(lambda self: self.world.is_durable)
    @rule(seed=st.integers(0, 2**16))
    def loses_its_power(self, seed: int) -> None:
        self.world.restart(power_loss_seed=seed)

    @rule()
    def is_read(self) -> None:
        self.world.read()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("seed", range(6))
def test_long_histories(seed: int) -> None:
    """The same rules, hundreds of steps of them."""
    chance = Random(seed)
    machine = TransactionsMachine()
    machine.begins(is_durable=seed % 2 == 0)

    def fate() -> str:
        return chance.choice(["heard"] * 10 + ["lost", chance.choice(CRASHES)])

    def hasty_fate() -> str:
        return "hasty" if chance.random() < 0.1 else fate()

    def asks_and_dies() -> None:
        machine.asks_and_dies(who(), chance.choices(PLACES, k=2), chance.choice(["lost", "hasty", *CRASHES]))

    def who() -> int:
        return chance.randrange(4)

    def place() -> tuple[str, int]:
        return chance.choice(PLACES)

    def transacts() -> None:
        places = chance.choices(PLACES, k=chance.randrange(4))
        machine.transacts(who(), places, chance.random() < 0.5, chance.random() < 0.6)

    def zombie() -> None:
        if machine.world.zombies:
            machine.a_zombie_wakes(chance.randrange(6), chance.randrange(5), place())

    def again() -> None:
        if machine.world.network:
            machine.comes_again(chance.randrange(REMEMBERED))

    def breaks() -> None:
        if machine.world.is_durable:
            machine.a_disk_breaks(chance.choice(STORES))

    def dies() -> None:
        machine.loses_its_power(chance.randrange(2**16)) if machine.world.is_durable else machine.is_killed()

    steps = [
        (3, lambda: machine.takes_the_place(who(), fate())),
        (8, transacts),
        (8, lambda: machine.writes(who(), place(), hasty_fate())),
        (3, lambda: machine.commits_an_offset(who(), hasty_fate())),
        (6, lambda: machine.ends(who(), chance.random() < 0.7, hasty_fate())),
        (2, asks_and_dies),
        (1, lambda: machine.goes_on(who(), fate())),
        (3, zombie),
        (4, again),
        (1, lambda: machine.the_disk_is_full(set(chance.sample(STORES, 2)))),
        (2, lambda: machine.the_disk_is_full(set())),
        (1, breaks),
        (3, lambda: machine.passes_time(chance.choice([1, 200, 6_000, TIMEOUT_MS]))),
        (1, lambda: machine.is_compacted(chance.choice([0, TOMBSTONES_ARE_KEPT_MS]))),
        (1, machine.is_killed),
        (1, dies),
        (2, machine.is_read),
    ]
    weights, actions = zip(*steps, strict=True)
    for action in chance.choices(actions, weights, k=500):
        action()
    machine.teardown()
    told = [attempt.told for attempt in machine.world.attempts]
    assert min(told.count(True), told.count(False)) > 3
    unknown = [attempt for attempt in machine.world.attempts if attempt.told is None and attempt.asked_to_commit]
    assert unknown
