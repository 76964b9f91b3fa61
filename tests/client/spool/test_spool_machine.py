"""The spool against a model broker: whatever is sent, lost, acknowledged, killed or refused by the disk, and whenever,
the logs hold what was promised, once and in order."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oncelog.client.spool.spool import SpoolConfig
from oncelog.types import TopicPartition
from tests.client.spool.driver import PARTITIONS, Driver
from tests.support.faulty_storage import FaultyStorage
from tests.support.sizes import examples

PARTITION = st.sampled_from(PARTITIONS)


class SpoolMachine(RuleBasedStateMachine):
    is_durable = False

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(FaultyStorage(), SpoolConfig(max_bytes=3000, is_durable=self.is_durable))

    def teardown(self) -> None:
        self.driver.finish()

    # --- what a producer does ---------------------------------------------------------------------------------

    @rule(partition=PARTITION, size=st.integers(0, 300))
    def append(self, partition: TopicPartition, size: int) -> None:
        self.driver.survive(lambda: self.driver.append(partition, size))

    @rule(most=st.integers(1, 8))
    def load(self, most: int) -> None:
        self.driver.survive(lambda: self.driver.load(most))

    @rule(partition=PARTITION, count=st.integers(1, 5), arrives=st.booleans())
    def send(self, partition: TopicPartition, count: int, arrives: bool) -> None:
        self.driver.survive(lambda: self.driver.send(partition, count, arrives=arrives))

    @rule(partition=PARTITION)
    def answer(self, partition: TopicPartition) -> None:
        self.driver.survive(lambda: self.driver.answer(partition))

    # --- accidents --------------------------------------------------------------------------------------------

    @rule()
    def close_and_open(self) -> None:
        self.driver.survive(self.driver.close)

    @rule()
    def kill(self) -> None:
        self.driver.come_back()

    @rule(operations=st.integers(0, 12), torn=st.booleans())
    def kill_soon(self, operations: int, torn: bool) -> None:
        self.driver.storage.crash_at(self.driver.storage.operations + operations, torn=torn)

    @rule(operations=st.integers(0, 12), torn=st.booleans(), sticky=st.booleans())
    def fail_soon(self, operations: int, torn: bool, sticky: bool) -> None:
        self.driver.storage.fail_at(self.driver.storage.operations + operations, torn=torn, sticky=sticky)

    @rule()
    def heal(self) -> None:
        self.driver.storage.heal()

    @invariant()
    def nothing_is_doubled_or_out_of_order(self) -> None:
        self.driver.audit(complete=False)


class DurableSpoolMachine(SpoolMachine):
    is_durable = True

    @rule(seed=st.integers(0, 10**6))
    def lose_power(self, seed: int) -> None:
        self.driver.power_seed = seed
        self.driver.come_back()
        self.driver.power_seed = None

    @rule(seed=st.integers(0, 10**6))
    def crashes_are_power_failures(self, seed: int) -> None:
        self.driver.power_seed = seed


_SETTINGS = settings(
    max_examples=examples(90), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSpool = SpoolMachine.TestCase
TestSpool.settings = _SETTINGS
TestDurableSpool = DurableSpoolMachine.TestCase
TestDurableSpool.settings = _SETTINGS
