"""The producer's core against a model cluster: any interleaving of losses, repeats, delays, errors and leader changes
ends with each record stored once, in order, or reported as failed.

`ONCELOG_SIM_SEEDS=1000:3000` plays other seeds than the few of every test run; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.idempotence import Idempotence
from oncelog.client.producer_errors import DeliveryFailed, ProducerClosed
from oncelog.errors import KafkaError
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.sim.model_cluster import FINAL_REFUSALS
from tests.sim.producer_world import (
    ID_REFUSALS,
    LATE_FAILURES,
    METADATA_REFUSALS,
    PARTITIONS,
    REFUSALS,
    TOPIC,
    BrokenPromiseError,
    ProducerWorld,
    delivered_records_are_where_they_were_reported,
    doubled,
    every_record_is_answered,
    everyone_s_promises,
    idempotent_promises,
    lost,
    memory_is_given_back,
    no_record_is_stored_twice,
    no_record_waits_too_long,
    records_reported_as_not_written_are_not_stored,
    reordered,
    reports_are_in_the_order_of_send,
    stored_numbers,
    stored_records_are_in_the_order_of_send,
    the_client_never_misbehaves,
)
from tests.sim.random_weather import CALM, REPEATS, TROUBLE, play
from tests.support.sizes import examples

SEQUENCE_SPAN = 2**31
NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_AFTER_APPEND = 6, 7, 10, 19, 20
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_RECORD = 29, 31, 87
FIRST, SECOND, THIRD = (TopicPartition(TOPIC, index) for index in range(PARTITIONS))

LINES = st.integers(0, 3)
NODES = st.integers(0, 2)
PARTITION = st.integers(0, PARTITIONS - 1)


# --- any interleaving -------------------------------------------------------------------------------------------------


class ProducerMachine(RuleBasedStateMachine):
    """Whatever may happen to an idempotent producer, in any order."""

    @initialize(
        produce_version=st.sampled_from([13, 12, 9, 8]),
        leader_hints=st.booleans(),
        max_message_bytes=st.sampled_from([1_000, 220]),
        near_wrap=st.booleans(),
        max_in_flight=st.sampled_from([5, 2, 1]),
    )
    def begin(
        self, produce_version: int, leader_hints: bool, max_message_bytes: int, near_wrap: bool, max_in_flight: int
    ) -> None:
        self.world = ProducerWorld(
            produce_version=produce_version,
            leader_hints=leader_hints,
            max_message_bytes=max_message_bytes,
            first_position=SEQUENCE_SPAN - 5 if near_wrap else 0,
            max_in_flight_requests_per_connection=max_in_flight,
        )

    @rule(partition=PARTITION, count=st.integers(1, 12), value_bytes=st.sampled_from([20, 90, 200]))
    def send(self, partition: int, count: int, value_bytes: int) -> None:
        for _ in range(count):
            self.world.send(partition, value_bytes)

    @rule(is_flushing=st.booleans())
    def flush(self, is_flushing: bool) -> None:
        self.world.set_flushing(is_flushing)

    @rule(line=LINES)
    def serve(self, line: int) -> None:
        self.world.serve(line)

    @rule(line=LINES)
    def answer(self, line: int) -> None:
        self.world.answer(line)

    @rule()
    def settle_down(self) -> None:
        self.world.settle_down()

    @rule(duration_ms=st.sampled_from([1, 6, 30, 120, 450, 1_500]))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule(line=LINES, requests_arrive=st.booleans())
    def cut(self, line: int, requests_arrive: bool) -> None:
        self.world.cut(line, requests_arrive)

    @rule(line=LINES)
    def stall(self, line: int) -> None:
        self.world.stall(line)

    @rule(node_id=NODES)
    def stop_node(self, node_id: int) -> None:
        self.world.stop_node(node_id)

    @rule()
    def start_node(self) -> None:
        self.world.start_node()

    @rule(partition=PARTITION, node_id=NODES, keep_unreplicated=st.booleans(), published=st.booleans())
    def change_leader(self, partition: int, node_id: int, keep_unreplicated: bool, published: bool) -> None:
        self.world.change_leader(partition, node_id, keep_unreplicated, published)

    @rule()
    def publish(self) -> None:
        self.world.cluster.publish()

    @rule(partition=PARTITION, code=st.sampled_from(REFUSALS + FINAL_REFUSALS))
    def refuse(self, partition: int, code: int) -> None:
        self.world.refuse(partition, code)

    @rule(partition=PARTITION, code=st.sampled_from(LATE_FAILURES))
    def fail_after_append(self, partition: int, code: int) -> None:
        self.world.fail_after_append(partition, code)

    @rule(code=st.sampled_from(METADATA_REFUSALS))
    def refuse_metadata(self, code: int) -> None:
        self.world.cluster.refuse(ApiKey.METADATA, code)

    @rule(code=st.sampled_from(ID_REFUSALS))
    def refuse_producer_id(self, code: int) -> None:
        self.world.cluster.refuse(ApiKey.INIT_PRODUCER_ID, code)

    @rule(throttle_ms=st.sampled_from([0, 30, 300]))
    def throttle(self, throttle_ms: int) -> None:
        self.world.cluster.throttle_ms = throttle_ms

    @rule(index=st.integers(0, 3))
    def late_arrival(self, index: int) -> None:
        self.world.deliver_straggler(index)

    @rule(index=st.integers(0, 3))
    def late_loss(self, index: int) -> None:
        self.world.lose_straggler(index)

    @rule(back=st.integers(1, 20))
    def repeat(self, back: int) -> None:
        if back <= len(self.world.cluster.stored_requests):
            self.world.cluster.deliver_again(-back)

    @invariant()
    def promises_that_hold_at_any_time(self) -> None:
        if hasattr(self, "world"):
            no_record_is_stored_twice(self.world)
            stored_records_are_in_the_order_of_send(self.world)
            delivered_records_are_where_they_were_reported(self.world)
            records_reported_as_not_written_are_not_stored(self.world)
            reports_are_in_the_order_of_send(self.world)
            the_client_never_misbehaves(self.world)
            no_record_waits_too_long(self.world)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()
            for promise in idempotent_promises():
                promise(self.world)


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)


# --- seeded long runs -------------------------------------------------------------------------------------------------


def seeds(few: range) -> range:
    chosen = os.environ.get("ONCELOG_SIM_SEEDS")
    if chosen is None:
        return few
    first, _, last = chosen.partition(":")
    return range(int(first), int(last or int(first) + 1))


def random_world(chance: random.Random, **fixed: Any) -> ProducerWorld:
    drawn: dict[str, Any] = {
        "jitter": chance.random,
        "produce_version": chance.choice((8, 9, 12, 13)),
        "leader_hints": chance.random() < 0.5,
        "max_message_bytes": chance.choice((1_000, 1_000, 220)),
        "compression_type": chance.choice(("none", "none", "gzip", "lz4", "zstd", "snappy")),
        "delivery_timeout_ms": chance.choice((1_000, 4_000, 10_000)),
        "buffer_memory": chance.choice((8_000, 60_000, 200_000)),
    }
    return ProducerWorld(**{**drawn, **fixed})


def play_seeds(few: range, run: Callable[[random.Random], None]) -> None:
    for seed in seeds(few):
        try:
            run(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}: replay it with ONCELOG_SIM_SEEDS={seed}")
            raise


def test_everything_sent_is_stored_once_and_in_order_or_reported() -> None:
    def run(chance: random.Random) -> None:
        world = random_world(chance)
        play(world, chance, 250, CALM, TROUBLE, REPEATS)
        world.finish()
        for promise in idempotent_promises():
            promise(world)

    play_seeds(range(40), run)


def test_sequences_wrap_in_any_weather() -> None:
    wrapped = 0

    def run(chance: random.Random) -> None:
        nonlocal wrapped
        world = random_world(chance, first_position=SEQUENCE_SPAN - chance.randint(1, 30))
        play(world, chance, 60, CALM)
        play(world, chance, 100, CALM, TROUBLE, REPEATS)
        world.finish()
        for promise in idempotent_promises():
            promise(world)
        for partition in world.cluster.partitions.values():
            sequences = [stored.batch.sequence for stored in partition.log if stored.batch.epoch == 0]
            wrapped += any(sequence >= SEQUENCE_SPAN - 30 for sequence in sequences) and any(
                sequence < SEQUENCE_SPAN // 2 for sequence in sequences
            )

    play_seeds(range(10), run)
    assert wrapped


def test_closing_answers_everything() -> None:
    """`close(timeout)` in any weather: what can be sent in time is sent, the rest is reported honestly."""
    delivered = 0

    def run(chance: random.Random) -> None:
        nonlocal delivered
        world = random_world(chance)
        play(world, chance, 80, CALM, TROUBLE)
        if chance.random() < 0.5:
            world.heal()
        before = sum(sent.is_delivered for sent in world.sent)
        world.close(chance.choice((0, 100, 3_000)))
        delivered += sum(sent.is_delivered for sent in world.sent) - before
        for promise in idempotent_promises():
            promise(world)

    play_seeds(range(20), run)
    assert delivered


# --- what idempotence is for ------------------------------------------------------------------------------------------


def test_without_idempotence_the_same_weather_doubles_and_reorders() -> None:
    """Also: the detectors of this file can fail."""
    found = {"doubled": 0, "reordered": 0}

    def run(chance: random.Random) -> None:
        world = random_world(chance, enable_idempotence=False)
        play(world, chance, 150, CALM, TROUBLE)
        world.finish()
        for promise in everyone_s_promises():
            promise(world)
        assert not lost(world)
        found["doubled"] += len(doubled(world))
        found["reordered"] += len(reordered(world))

    play_seeds(range(15), run)
    assert found["doubled"] > 0
    assert found["reordered"] > 0


def test_without_idempotence_one_request_at_a_time_keeps_the_order_and_doubles_all_the_same() -> None:
    found = 0

    def run(chance: random.Random) -> None:
        nonlocal found
        world = random_world(chance, enable_idempotence=False, max_in_flight_requests_per_connection=1)
        play(world, chance, 150, CALM, TROUBLE)
        world.finish()
        for promise in everyone_s_promises():
            promise(world)
        reports_are_in_the_order_of_send(world)
        assert not lost(world)
        assert not reordered(world)
        found += len(doubled(world))

    play_seeds(range(15), run)
    assert found > 0


def test_acknowledged_by_the_leader_alone_is_lost_with_the_leader() -> None:
    world = ProducerWorld(acks=1)
    world.send(0)
    world.pass_time(20, healthy=True)
    assert world.sent[0].is_delivered
    assert not lost(world)
    world.change_leader(0, 1, keep_unreplicated=False, published=True)
    assert lost(world) == ["t-0#0 was delivered and is not stored"]


def test_acknowledged_by_the_leader_is_kept_while_it_leads() -> None:
    def run(chance: random.Random) -> None:
        world = random_world(chance, acks=1)
        calm_elections = [(weight, action) for weight, action in TROUBLE if weight != 4]
        play(world, chance, 150, CALM, calm_elections)
        world.finish()
        for promise in everyone_s_promises():
            promise(world)
        assert not lost(world)

    play_seeds(range(10), run)


def test_without_acknowledgement_a_record_counts_as_sent_at_once_and_may_be_lost() -> None:
    world = ProducerWorld(acks=0)
    world.send(0)
    world.pass_time(20, healthy=True)
    world.send(0)
    world.pass_time(6)
    assert [sent.is_delivered for sent in world.sent] == [True, True]
    assert [sent.offset for sent in world.sent] == [-1, -1]
    for index in range(3):
        world.cut(index, requests_arrive=False)
    world.finish()
    assert lost(world) == ["t-0#1 was delivered and is not stored"]
    for promise in everyone_s_promises():
        promise(world)


# --- one case each ----------------------------------------------------------------------------------------------------


def busy_world(**settings: Any) -> ProducerWorld:
    """Every partition has stored a record, so that up to five batches may be under way in each."""
    world = ProducerWorld(linger_ms=0, batch_size=100, **settings)
    for partition in range(PARTITIONS):
        world.send(partition)
    world.pass_time(50, healthy=True)
    assert all(sent.is_delivered for sent in world.sent)
    return world


def epoch(world: ProducerWorld) -> int:
    assert world.core.idempotence is not None
    assert world.core.idempotence.identity is not None
    return world.core.idempotence.identity.producer_epoch


def leader_change_with_a_gap_elsewhere(world: ProducerWorld) -> None:
    """Two batches in each of two partitions are under way when their leaders change. Those of the first partition are
    stored, but the answers are lost; in the second, a replica takes over that lacks even what was acknowledged."""
    world.send(1)
    world.pass_time(10, healthy=True)
    for _ in range(2):
        world.send(0)
        world.send(1)
    for line in world.lines:
        while line.requests:
            line.serve()
    assert stored_numbers(world, FIRST) == [0, 1, 2]
    world.cluster.change_leader_uncleanly(SECOND, 2, lost_batches=3)
    world.change_leader(0, 1, keep_unreplicated=True, published=True)
    while world.lines:
        world.cut(0, requests_arrive=False)


def test_the_epoch_waits_for_batches_of_unknown_fate_in_other_partitions() -> None:
    """librdkafka's open issue 4953: a leader change and a gap in one partition made it bump the epoch while batches of
    another were of unknown fate; they were sent again under new numbers, and stored twice."""
    world = busy_world()
    idempotence = world.core.idempotence
    assert idempotence is not None
    leader_change_with_a_gap_elsewhere(world)
    for _ in range(40):
        world.fail_after_append(0, TIMED_OUT)  # the fate of the first stays unknown for a while
    world.pass_time(500, healthy=True)
    assert idempotence.bump_reason is not None
    assert not world.sent[PARTITIONS + 1].is_reported
    assert epoch(world) == 0
    world.finish()
    assert epoch(world) == 1
    assert all(sent.is_delivered for sent in world.sent)
    no_record_is_stored_twice(world)
    assert stored_numbers(world, FIRST) == [0, 1, 2, 3]
    assert stored_numbers(world, SECOND) == [0, 2, 3, 4]


class HastyIdempotence(Idempotence):
    def bump(self, queues: Iterable[PartitionQueue]) -> bool:
        queues = list(queues)
        if self.bump_reason is not None:
            for batch in (batch for queue in queues for batch in queue.unsettled):
                batch.may_be_written = batch.is_in_flight
        return super().bump(queues)


def test_a_hasty_bump_would_double() -> None:
    """The case above can tell: this is what becomes of a producer that does not wait."""
    world = busy_world(new_idempotence=HastyIdempotence)
    leader_change_with_a_gap_elsewhere(world)
    for _ in range(40):
        world.fail_after_append(0, TIMED_OUT)
    world.pass_time(500, healthy=True)
    world.finish()
    assert doubled(world)


def test_the_oldest_of_unknown_fate_is_not_pushed_out_of_the_broker_s_memory() -> None:
    """A broker remembers five batches. The first of six is stored, though its answer says otherwise; were the sixth
    sent before the first is settled, the broker would take the first for lost when asked again, and so would we."""
    world = busy_world()
    world.fail_after_append(0, NOT_ENOUGH_AFTER_APPEND)
    for _ in range(10):
        world.send(0)
    world.settle_down()
    assert stored_numbers(world, FIRST) == [0, 1, 2, 3, 4, 5]
    assert not any(sent.is_reported for sent in world.sent[PARTITIONS:])
    for _ in range(30):
        world.fail_after_append(0, NOT_ENOUGH_AFTER_APPEND)
    world.pass_time(500, healthy=True)
    assert stored_numbers(world, FIRST) == [0, 1, 2, 3, 4, 5]
    world.finish()
    assert epoch(world) == 0
    for promise in idempotent_promises():
        promise(world)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_batches_that_a_restarted_broker_forgot_are_not_stored_again(count: int) -> None:
    """A Kafka that was restarted cleanly remembers the last batch of a producer only, and calls those before it out of
    order. That the last one is recognised tells that they are stored."""
    world = busy_world()
    for _ in range(count):
        world.fail_after_append(0, TIMED_OUT)
        world.send(0)
    world.settle_down()
    assert stored_numbers(world, FIRST) == list(range(count + 1))
    world.cluster.partitions[FIRST].restart_cleanly()
    world.finish()
    assert all(sent.is_delivered for sent in world.sent)
    no_record_is_stored_twice(world)
    assert epoch(world) == 0
    for promise in idempotent_promises():
        promise(world)


def test_a_batch_too_large_is_split_until_it_fits() -> None:
    world = ProducerWorld(max_message_bytes=150, batch_size=900)
    for _ in range(20):
        world.send(0)
    world.finish()
    assert world.counters.batch_splits >= 3
    assert all(sent.is_delivered for sent in world.sent)
    for promise in idempotent_promises():
        promise(world)


def test_a_refused_batch_does_not_let_those_behind_it_overtake() -> None:
    world = busy_world()
    for _ in range(2):
        world.refuse(0, NOT_ENOUGH_REPLICAS)
    for _ in range(8):
        world.send(0)
    world.pass_time(500, healthy=True)
    assert all(sent.is_delivered for sent in world.sent)
    assert epoch(world) == 0
    for promise in idempotent_promises():
        promise(world)


def test_a_batch_refused_for_good_fails_alone() -> None:
    world = busy_world()
    world.refuse(0, INVALID_RECORD)
    for _ in range(4):
        world.send(0)
    world.pass_time(500, healthy=True)
    failed = [sent for sent in world.sent if not sent.is_delivered]
    assert [(sent.partition, sent.number) for sent in failed] == [(FIRST, 1)]
    assert isinstance(failed[0].error, KafkaError)
    assert epoch(world) == 1
    for promise in idempotent_promises():
        promise(world)


def test_a_final_refusal_after_a_lost_answer_is_not_reported_as_unwritten() -> None:
    world = busy_world()
    world.send(0)
    for line in world.lines:
        line.serve()
    while world.lines:
        world.cut(0, requests_arrive=False)
    world.refuse(0, TOPIC_AUTHORIZATION_FAILED)
    world.pass_time(500, healthy=True)
    (failed,) = [sent for sent in world.sent if not sent.is_delivered]
    assert isinstance(failed.error, DeliveryFailed)
    assert failed.error.may_be_written
    assert stored_numbers(world, FIRST) == [0, 1]


def test_out_of_order_proves_nothing_while_the_batch_before_may_still_arrive() -> None:
    """Two batches are on a connection that breaks, and arrive late. Meanwhile the first is given up and the second is
    refused for the gap: to number it anew would store it twice."""
    world = busy_world()
    world.send(0)
    world.send(0)
    while world.lines:
        world.cut(0, requests_arrive=True)
    world.refuse(0, TOPIC_AUTHORIZATION_FAILED)
    while epoch(world) == 0 and not world.sent[-1].is_reported:
        world.pass_time(10)
        for line in world.lines:
            line.serve()
        for index in range(len(world.lines)):
            world.answer(index)
    while world.cluster.stragglers:
        world.deliver_straggler(0)
    assert stored_numbers(world, FIRST) == [0, 1, 2]
    world.finish()
    assert [sent.is_delivered for sent in world.sent[PARTITIONS:]] == [False, False, True, True, True]
    for promise in idempotent_promises():
        promise(world)


def test_a_full_memory_refuses_and_recovers() -> None:
    world = ProducerWorld(buffer_memory=5_000)
    world.stop_node(0)
    accepted = 0
    while world.send(0):
        accepted += 1
    assert 0 < accepted < 100
    world.start_node()
    world.pass_time(1_000, healthy=True)
    memory_is_given_back(world)
    assert world.send(0)
    world.finish()
    for promise in idempotent_promises():
        promise(world)


def test_throttling_is_obeyed() -> None:
    world = busy_world()
    world.cluster.throttle_ms = 300
    world.send(0)
    world.pass_time(10, healthy=True)
    world.cluster.throttle_ms = 0
    written = sum(line.written for line in world.cluster.lines if line.node_id == 0)
    world.send(0)
    world.pass_time(280, healthy=True)
    assert sum(line.written for line in world.cluster.lines if line.node_id == 0) == written
    assert not world.sent[-1].is_reported
    world.pass_time(30, healthy=True)
    assert world.sent[-1].is_delivered


def test_a_cluster_that_refuses_a_producer_id_for_good_fails_everything() -> None:
    world = ProducerWorld()
    world.cluster.refuse(ApiKey.INIT_PRODUCER_ID, CLUSTER_AUTHORIZATION_FAILED)
    world.send(0)
    world.pass_time(100, healthy=True)
    assert world.core.fatal is not None
    every_record_is_answered(world)
    memory_is_given_back(world)
    assert world.sent[0].is_surely_unwritten


def test_acknowledged_records_that_an_unclean_election_took_are_not_sent_again() -> None:
    world = busy_world()
    for _ in range(3):
        world.send(0)
    world.pass_time(20, healthy=True)
    world.cluster.change_leader_uncleanly(FIRST, 1, lost_batches=2)
    for _ in range(3):
        world.send(0)
    world.finish()
    assert epoch(world) == 1
    assert all(sent.is_delivered for sent in world.sent)
    assert stored_numbers(world, FIRST) == [0, 1, 4, 5, 6, 7]
    no_record_is_stored_twice(world)


def test_a_producer_that_the_brokers_forgot_goes_on() -> None:
    world = busy_world()
    assert world.core.idempotence is not None
    assert world.core.idempotence.identity is not None
    world.cluster.forget_producer(world.core.idempotence.identity.producer_id)
    for _ in range(4):
        world.send(0)
    world.finish()
    for promise in idempotent_promises():
        promise(world)


def test_a_closed_producer_says_so_of_what_it_could_not_send() -> None:
    world = ProducerWorld()
    for node_id in world.cluster.nodes:
        world.cluster.stop(node_id)
    world._notice_ended()
    world.send(0)
    world.close(50)
    (sent,) = world.sent
    assert isinstance(sent.error, ProducerClosed)
    memory_is_given_back(world)


def test_the_promises_can_be_broken() -> None:
    world = busy_world()
    world.cluster.partitions[FIRST].log.append(world.cluster.partitions[FIRST].log[0])
    with pytest.raises(BrokenPromiseError, match="2 times"):
        no_record_is_stored_twice(world)
    with pytest.raises(BrokenPromiseError, match="before"):
        stored_records_are_in_the_order_of_send(world)
    world.cluster.partitions[FIRST].log.clear()
    with pytest.raises(BrokenPromiseError, match="not stored"):
        delivered_records_are_where_they_were_reported(world)
