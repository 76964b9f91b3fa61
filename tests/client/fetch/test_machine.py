"""Any weather, any user: every record from the position on comes once, in order, none is left out, and bounds hold.

The promises themselves are checked by the world, with every record and every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.client.fetch.partitions import EARLIEST, LATEST, Stage
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.sim.consumer_world import PARTITIONS, TOPIC, ConsumerWorld
from tests.sim.model_reading import VERSIONS
from tests.support.sizes import examples

INDEXES = st.integers(0, PARTITIONS - 1)
NODES = st.integers(0, 2)
ANY = st.integers(0, 7)
FETCH_ERRORS = (-1, 3, 5, 6, 9, 56, 74, 75, 78, 100, 103)
SESSION_ERRORS = (70, 71, 106)
QUESTIONS = (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH)
LIST_ERRORS = (3, 5, 6, 9, 56, 74, 75, 78)


class FetcherMachine(RuleBasedStateMachine):
    model: Mapping[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld(model=self.model)
        self.world.start(*range(PARTITIONS))

    # --- the user ---------------------------------------------------------------------------------------------------

    @rule(max_records=st.integers(1, 20))
    def read(self, max_records: int) -> None:
        self.world.read(max_records)

    @rule(index=INDEXES, share=st.floats(0, 1))
    def seek(self, index: int, share: float) -> None:
        log = self.world.log(index)
        if TopicPartition(TOPIC, index) in self.world.fetcher.states:
            self.world.seek(index, log.start_offset + int(share * (log.end_offset - log.start_offset)))

    @rule(index=INDEXES, spec=st.sampled_from([EARLIEST, LATEST, None]))
    def reset(self, index: int, spec: int | None) -> None:
        self.world.reset(index, spec)

    @rule(index=INDEXES, is_paused=st.booleans())
    def pause(self, index: int, is_paused: bool) -> None:
        (self.world.pause if is_paused else self.world.resume)(index)

    @rule(indexes=st.sets(INDEXES))
    def assign(self, indexes: set[int]) -> None:
        self.world.assign(*indexes)

    @rule()
    def position(self) -> None:
        """What the core above does for new partitions without a committed offset."""
        for state in self.world.fetcher.unpositioned():
            self.world.reset(state.partition.partition)

    # --- the cluster ------------------------------------------------------------------------------------------------

    @rule(index=INDEXES, record_count=st.integers(1, 5), batch_count=st.integers(1, 6))
    def append(self, index: int, record_count: int, batch_count: int) -> None:
        for _ in range(batch_count):
            self.world.append(index, record_count)

    @rule(index=INDEXES, node_id=NODES, published=st.booleans())
    def change_leader(self, index: int, node_id: int, published: bool) -> None:
        self.world.log(index).change_leader(node_id)
        if published:
            self.world.cluster.publish()

    @rule(index=INDEXES, node_id=NODES, lost=st.integers(0, 4), appended=st.integers(0, 4))
    def lose_records(self, index: int, node_id: int, lost: int, appended: int) -> None:
        """An unclean election: the new leader lacks the newest batches, and goes on from there."""
        self.world.log(index).change_leader(node_id, lost_batches=lost)
        for _ in range(appended):
            self.world.append(index, 2)
        self.world.cluster.publish()

    @rule(index=INDEXES, node_id=NODES, lost=st.integers(1, 4))
    def lose_what_was_read(self, index: int, node_id: int, lost: int) -> None:
        """The same, behind a reader's back: the log is as long as before, and another one."""
        self.world.pass_time(200)
        self.lose_records(index, node_id, lost, 3 * lost)

    @rule(index=INDEXES, batch_count=st.integers(1, 4))
    def retire(self, index: int, batch_count: int) -> None:
        self.world.log(index).delete_oldest(batch_count)

    @rule(index=INDEXES, code=st.sampled_from(FETCH_ERRORS))
    def fail_fetch(self, index: int, code: int) -> None:
        self.world.log(index).errors.append(code)

    @rule(code=st.sampled_from(SESSION_ERRORS))
    def refuse_session(self, code: int) -> None:
        self.world.cluster.refusals[ApiKey.FETCH].append(code)

    @rule()
    def forget_sessions(self) -> None:
        self.world.cluster.sessions.clear()

    @rule(code=st.sampled_from(LIST_ERRORS), api_key=st.sampled_from(QUESTIONS))
    def refuse_questions(self, code: int, api_key: ApiKey) -> None:
        self.world.cluster.refusals[api_key].append(code)

    @rule(index=INDEXES, node_id=st.integers(-1, 2))
    def prefer_replica(self, index: int, node_id: int) -> None:
        self.world.log(index).read_replica = node_id

    # --- the network ------------------------------------------------------------------------------------------------

    @rule(index=ANY)
    def serve(self, index: int) -> None:
        self.world.serve(index)

    @rule(index=ANY)
    def answer(self, index: int) -> None:
        self.world.answer(index)

    @rule(index=ANY)
    def cut(self, index: int) -> None:
        self.world.cut(index)

    @rule(index=ANY)
    def garble(self, index: int) -> None:
        self.world.garble(index)

    @precondition(lambda self: not self.world.cluster.stopped)
    @rule(node_id=NODES)
    def stop_node(self, node_id: int) -> None:
        self.world.stop_node(node_id)

    @rule()
    def heal(self) -> None:
        self.world.heal()

    @rule(duration_ms=st.integers(1, 300), healthy=st.booleans(), reading=st.booleans())
    def pass_time(self, duration_ms: int, healthy: bool, reading: bool) -> None:
        self.world.pass_time(duration_ms, healthy=healthy, reading=reading)

    # --- promises ---------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_complains(self) -> None:
        assert self.world.cluster.complaints == []

    @invariant()
    def errors_are_rare(self) -> None:
        """With a policy that resets, the user hears nothing of all this."""
        assert self.world.errors == []

    def teardown(self) -> None:
        self.world.finish()
        held = [state for state in self.world.fetcher.states.values() if state.stage is Stage.HELD]
        assert held == []


class WithoutSessions(FetcherMachine):
    """An old cluster: topics by name, no sessions, no epochs in fetches."""

    model = {"versions": {**VERSIONS, ApiKey.FETCH: (4, 11)}, "has_sessions": False, "leader_hints": False}


QUICK = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

TestFetcherMachine = FetcherMachine.TestCase
TestFetcherMachine.settings = QUICK
TestWithoutSessions = WithoutSessions.TestCase
TestWithoutSessions.settings = QUICK
