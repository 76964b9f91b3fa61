"""What the sender does on each answer, row by row of the table; who is served when, in which requests, and for how
long."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.metadata import NO_LEADER
from oncelog.client.network import Network
from oncelog.client.producer_errors import DeliveryFailed, DeliveryTimedOut, ProducerClosed
from oncelog.errors import (
    ERRORS_BY_CODE,
    InvalidProducerEpoch,
    KafkaError,
    MessageTooLarge,
    UnsupportedVersion,
)
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.produce import ProducedPartition
from tests.sim.model_cluster import ModelCluster
from tests.sim.producer_world import PARTITIONS, TOPIC, ProducerWorld, Sent, idempotent_promises

FIRST = TopicPartition(TOPIC, 0)
A_WHILE_MS = 1_000
"""Long enough for a few retries, and far below delivery.timeout.ms."""
LONG_MS = 10_000


def world(**settings: Any) -> ProducerWorld:
    """A producer whose first batch to each partition is stored."""
    started = ProducerWorld(**settings)
    for partition in range(PARTITIONS):
        started.send(partition)
    started.pass_time(300, healthy=True)
    assert all(sent.is_delivered for sent in started.sent)
    started.sent.clear()
    return started


def send(started: ProducerWorld, *partitions: int) -> list[Sent]:
    """One record each, in a batch of its own, on its way."""
    started.set_flushing(True)
    for partition in partitions:
        assert started.send(partition)
    started.set_flushing(False)
    return started.sent[-len(partitions) :]


def settle(started: ProducerWorld, duration_ms: int = A_WHILE_MS) -> None:
    started.pass_time(duration_ms, healthy=True)


def identity(started: ProducerWorld) -> Any:
    idempotence = started.core.idempotence
    assert idempotence is not None
    return idempotence.identity


def all_is_well(started: ProducerWorld) -> None:
    started.finish()
    for promise in idempotent_promises():
        promise(started)


RETRIABLE = sorted(code for code, error in ERRORS_BY_CODE.items() if error.retriable)
FINAL = (17, 21, 29, 32, 42, 43, 76, 87)


class TestTheTableOfErrors:
    @pytest.mark.parametrize("code", RETRIABLE)
    def test_retriable_is_sent_again_under_the_same_number(self, code: int) -> None:
        started = world()
        before = identity(started)
        started.refuse(0, code)
        (sent,) = send(started, 0)
        settle(started)
        assert sent.is_delivered
        assert sent.offset == 1
        assert identity(started) == before
        assert started.counters.records_retried == 1
        assert started.counters.epoch_bumps == 0

    @pytest.mark.parametrize("code", [6, 7, 20])
    def test_retriable_after_the_append_is_recognised_when_it_comes_again(self, code: int) -> None:
        started = world()
        started.fail_after_append(0, code)
        (sent,) = send(started, 0)
        settle(started)
        assert sent.is_delivered
        assert started.cluster.partitions[FIRST].end_offset == 2

    def test_45_not_next_in_line_is_sent_again_under_the_same_number(self) -> None:
        started = world()
        before = identity(started)
        started.refuse(0, 19)  # the first is not there yet when the second arrives
        first, second = send(started, 0, 0)
        settle(started)
        assert (first.offset, second.offset) == (1, 2)
        assert identity(started) == before

    def test_45_of_a_true_gap_bumps_the_epoch_and_renumbers(self) -> None:
        started = world()
        before = identity(started)
        started.refuse(0, 45)
        first, second = send(started, 0, 0)
        settle(started)
        assert (first.offset, second.offset) == (1, 2)
        assert identity(started) == (before.producer_id, before.producer_epoch + 1)
        assert started.counters.epoch_bumps == 1
        all_is_well(started)

    def test_46_is_success_at_an_unknown_offset(self) -> None:
        started = world()
        started.refuse(0, 46)
        (sent,) = send(started, 0)
        settle(started)
        assert sent.is_delivered
        assert sent.offset == -1
        assert started.counters.duplicates_acknowledged == 1

    def test_59_bumps_the_epoch_and_sends_again(self) -> None:
        started = world()
        before = identity(started)
        started.refuse(0, 59)
        (sent,) = send(started, 0)
        settle(started)
        assert sent.offset == 1
        assert identity(started) == (before.producer_id, before.producer_epoch + 1)

    def test_47_fails_the_batch_and_takes_a_new_id(self) -> None:
        started = world()
        before = identity(started)
        started.refuse(0, 47)
        (failed,) = send(started, 0)
        settle(started)
        (later,) = send(started, 0)
        settle(started)
        assert isinstance(failed.error, InvalidProducerEpoch)
        assert later.is_delivered
        assert identity(started).producer_id != before.producer_id

    @pytest.mark.parametrize("code", FINAL)
    def test_final_fails_the_batch_alone(self, code: int) -> None:
        started = world()
        started.refuse(0, code)
        failed, later, elsewhere = send(started, 0, 0, 1)
        settle(started)
        assert isinstance(failed.error, KafkaError)
        assert failed.error.code == code
        assert str(failed.error).startswith("t-0: ")
        assert later.is_delivered
        assert elsewhere.is_delivered
        all_is_well(started)

    def test_minus_1_fails_and_says_that_nobody_knows(self) -> None:
        started = world()
        started.refuse(0, -1)
        (failed,) = send(started, 0)
        settle(started)
        assert isinstance(failed.error, DeliveryFailed)
        assert failed.error.may_be_written
        all_is_well(started)

    def test_10_splits_and_keeps_the_order(self) -> None:
        started = world(max_message_bytes=150)
        started.set_flushing(False)
        for _ in range(6):
            started.send(0, 30)
        settle(started)
        assert [sent.offset for sent in started.sent] == list(range(1, 7))
        assert started.counters.batch_splits > 0
        all_is_well(started)

    def test_10_of_a_single_record_fails_it(self) -> None:
        started = world(max_message_bytes=150)
        too_large, later = (started.send(0, 200), started.send(0, 20)) and started.sent[-2:]
        settle(started)
        assert isinstance(too_large.error, MessageTooLarge)
        assert later.is_delivered
        all_is_well(started)

    def test_delivery_timeout_with_unknown_fate_drains_then_bumps(self) -> None:
        started = world()
        before = identity(started)
        for line in range(len(started.lines)):
            started.stall(line)
        (sent,) = send(started, 0)
        started.pass_time(started.config.delivery_timeout_ms + 200)
        assert isinstance(sent.error, DeliveryTimedOut)
        assert sent.error.may_be_written
        settle(started, started.long_ms)
        (later,) = send(started, 0)
        settle(started)
        assert later.is_delivered
        assert identity(started).producer_epoch > before.producer_epoch
        all_is_well(started)


class TestRetriesHaveAPauseAndABound:
    """However a broker answers, it is not asked without a pause, nor for ever."""

    @pytest.mark.parametrize("code", [*RETRIABLE, 45, 59])
    def test_of_a_broker_that_gives_the_same_answer_for_ever(self, code: int, caplog: pytest.LogCaptureFixture) -> None:
        started = world(delivery_timeout_ms=10_000, retry_backoff_ms=100, retry_backoff_max_ms=1_000)
        before = started.counters.requests_sent
        (sent,) = self.refused_for_ever(started, code)
        settle(started, 12_000)
        assert isinstance(sent.error, DeliveryTimedOut)
        assert 5 <= started.counters.requests_sent - before <= 20, "pauses grow from 100 ms to a second"
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == 1
        assert f"1 record for {TOPIC}-0 not stored after 5 attempts" in warned[0]

    @pytest.mark.parametrize("code", [45, 59])
    def test_of_numbers_that_are_given_anew_each_time(self, code: int) -> None:
        started = world(retries=3)
        before = started.counters.requests_sent
        (sent,) = self.refused_for_ever(started, code)
        settle(started, 2_000)
        assert isinstance(sent.error, KafkaError)
        assert sent.error.code == code
        assert started.counters.requests_sent - before == 4

    @pytest.mark.parametrize("base_offset", [-2, -(2**63), 2**63 - 1, 2**63 - 2**31])
    def test_of_an_offset_that_no_log_has(self, base_offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
        started = world()
        append = ModelCluster._append

        def moved(self: ModelCluster, *arguments: Any) -> ProducedPartition:
            answer = append(self, *arguments)
            return answer._replace(base_offset=base_offset) if is_odd else answer

        is_odd = True
        monkeypatch.setattr(ModelCluster, "_append", moved)
        (sent,) = send(started, 0)
        settle(started)
        assert not sent.is_delivered
        is_odd = False
        settle(started, LONG_MS)
        assert sent.offset == 1
        assert started.cluster.partitions[FIRST].end_offset == 2, "it is stored once"

    @staticmethod
    def refused_for_ever(started: ProducerWorld, code: int) -> list[Sent]:
        for _ in range(5_000):
            started.refuse(0, code)
        return send(started, 0)


class TestProducerIds:
    @pytest.mark.parametrize("identity", [(-1, 0), (7, -1), (-(2**63), -(2**15))])
    def test_that_stand_for_none_are_asked_for_again(
        self, identity: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        started = ProducerWorld()
        give = ModelCluster._init_producer_id
        asked: list[Message] = []

        def odd(self: ModelCluster, question: Message) -> Message:
            asked.append(question)
            producer_id, epoch = identity
            return {"producer_id": producer_id, "producer_epoch": epoch} if len(asked) < 7 else give(self, question)

        monkeypatch.setattr(ModelCluster, "_init_producer_id", odd)
        (sent,) = send(started, 0)
        settle(started, LONG_MS)
        assert sent.is_delivered
        assert len(asked) == 7
        assert f"the answer was id {identity[0]}, epoch {identity[1]}" in caplog.text

    @pytest.mark.parametrize("code", [14, 15, 16, 51])
    def test_are_asked_for_until_there_is_one(self, code: int) -> None:
        started = ProducerWorld()
        started.cluster.refuse(ApiKey.INIT_PRODUCER_ID, code, code)
        (sent,) = send(started, 0)
        settle(started)
        assert sent.is_delivered

    @pytest.mark.parametrize("code", [31, 53])
    def test_that_are_refused_for_good_end_the_producer(self, code: int) -> None:
        started = ProducerWorld()
        started.cluster.refuse(ApiKey.INIT_PRODUCER_ID, code)
        (sent,) = send(started, 0)
        settle(started)
        assert isinstance(sent.error, KafkaError)
        assert sent.error.code == code
        assert started.core.fatal is sent.error
        assert started.accumulator.used_bytes == 0

    def test_of_a_broker_that_has_none_end_the_producer_with_a_remedy(self) -> None:
        started = ProducerWorld()
        del started.cluster.versions[ApiKey.INIT_PRODUCER_ID]
        started.cluster.cut_connections(0, requests_arrive=False)
        started.cluster.cut_connections(1, requests_arrive=False)
        started._notice_ended()
        (sent,) = send(started, 0)
        settle(started)
        assert isinstance(sent.error, UnsupportedVersion)
        assert "enable.idempotence=false" in str(sent.error)

    def test_are_not_asked_for_without_need(self) -> None:
        started = ProducerWorld()
        settle(started)
        assert identity(started) is None


class TestRequests:
    def test_hold_one_batch_of_each_partition_up_to_max_request_size(self) -> None:
        taken: list[list[int]] = []

        class Watched(Network):
            def send(self, node_id: int, api_key: ApiKey, body: Any, *arguments: Any, **options: Any) -> int:
                if api_key == ApiKey.PRODUCE:
                    sizes = [len(one.records) for topic in body.topics for one in topic.partitions]
                    indexes = [one.index for topic in body.topics for one in topic.partitions]
                    assert len(set(indexes)) == len(indexes)
                    assert sum(sizes) <= 900 or len(sizes) == 1
                    taken.append(indexes)
                return super().send(node_id, api_key, body, *arguments, **options)

        started = world(max_request_size=900, batch_size=300, partitioner="round_robin", network=Watched)
        leader = started.queue(0).leader
        taken.clear()
        for _ in range(60):
            for partition in range(PARTITIONS):
                started.send(partition, 90)
        settle(started)
        assert all(sent.is_delivered for sent in started.sent)
        assert leader == 0
        assert taken

    def test_serve_every_partition_in_turn(self) -> None:
        """A partition with much to send does not starve those with little."""
        started = world(max_request_size=400, batch_size=300, max_in_flight_requests_per_connection=1)
        for partition in range(PARTITIONS):
            started.change_leader(partition, 0, True, True)
        settle(started, 1_500)
        for _ in range(40):
            started.send(0, 200)
        (little,) = send(started, 1)
        for _ in range(6):
            started.settle_down()
            started.pass_time(10)
        settle(started, 200)
        assert little.is_delivered
        assert all(sent.is_delivered for sent in started.sent)

    def test_wait_for_linger_unless_the_batch_is_full_or_flushed(self) -> None:
        started = world(linger_ms=200)
        started.send(0, 20)
        started.pass_time(150, healthy=True)
        assert not started.sent[0].is_reported
        started.pass_time(100, healthy=True)
        assert started.sent[0].is_delivered
        for _ in range(4):
            started.send(1, 90)
        started.pass_time(50, healthy=True)
        assert started.sent[1].is_delivered
        assert not started.sent[-1].is_reported
        started.set_flushing(True)
        started.pass_time(50, healthy=True)
        assert started.sent[-1].is_delivered

    def test_without_numbers_wait_for_the_one_before_if_one_at_a_time_is_allowed(self) -> None:
        """Also where the next one would go to another broker."""
        started = world(enable_idempotence=False, max_in_flight_requests_per_connection=1)
        for line in started.cluster.lines_of(0):
            line.stall()
        (first,) = send(started, 0)
        started.change_leader(0, 1, True, True)
        started.core.metadata.mark_stale()
        settle(started, 150)
        assert started.queue(0).leader == 1
        (second,) = send(started, 0)
        settle(started, 100)
        assert not second.is_reported
        settle(started)
        assert (first.offset, second.offset) == (1, 2)

    def test_are_not_sent_while_a_broker_asks_for_a_pause(self) -> None:
        started = world()
        started.cluster.throttle_ms = 700
        (first,) = send(started, 0)
        settle(started, 100)
        (second,) = send(started, 0)
        settle(started, 500)
        assert first.is_delivered
        assert not second.is_reported
        settle(started, 300)
        assert second.is_delivered
        assert started.counters.throttle_ms == 1_400


class TestLeaders:
    def test_are_asked_for_when_an_idle_connection_breaks(self) -> None:
        started = world(metadata_max_age_ms=10 * LONG_MS)
        assert started.queue(0).leader == 0
        started.change_leader(0, 1, keep_unreplicated=True, published=True)
        settle(started, LONG_MS)
        assert started.queue(0).leader == 0, "nobody had a reason to ask"
        started.cut(0, requests_arrive=True)
        settle(started)
        assert started.queue(0).leader == 1

    def test_of_a_topic_that_no_broker_has_any_more_are_unknown_until_one_has_it(self) -> None:
        """So that a spool passes its records by, instead of sending them to a leader that is none."""
        started = world()
        topics = started.cluster.topic_ids
        deleted = dict(topics)
        topics.clear()
        started.core.metadata.mark_stale()
        settle(started, 150)
        assert started.queue(0).leader == NO_LEADER
        (waiting,) = send(started, 0)
        settle(started, 500)
        assert not waiting.is_reported
        topics.update(deleted)
        settle(started)
        assert started.queue(0).leader == 0
        assert waiting.is_delivered

    def test_a_record_for_a_topic_that_is_gone_says_so(self) -> None:
        started = world()
        started.cluster.topic_ids.clear()
        started.core.metadata.mark_stale()
        settle(started, 150)
        (lost,) = send(started, 0)
        settle(started, LONG_MS)
        assert "no broker has the topic" in str(lost.error)


class TestTime:
    def test_a_record_that_no_broker_took_says_so(self) -> None:
        started = world()
        started.stop_node(0)
        (sent,) = send(started, 0)
        started.pass_time(started.config.delivery_timeout_ms + 200, healthy=True)
        assert isinstance(sent.error, DeliveryTimedOut)
        assert not sent.error.may_be_written
        assert "1 record for t-0 not acknowledged within delivery.timeout.ms (4000)" in str(sent.error)
        assert "partition 0 of topic 't' has no leader: its broker is down" in str(sent.error)

    def test_retries_are_bounded_if_the_user_says_so(self) -> None:
        started = world(enable_idempotence=False, retries=2)
        for _ in range(3):
            started.refuse(0, 19)
        (sent,) = send(started, 0)
        settle(started)
        assert isinstance(sent.error, KafkaError)
        assert sent.error.code == 19
        assert started.counters.records_retried == 2

    def test_a_batch_that_arrives_damaged_says_so_and_nothing_of_logs(self) -> None:
        started = world(enable_idempotence=False, retries=0)
        started.refuse(0, 2)
        (sent,) = send(started, 0)
        settle(started)
        assert str(sent.error) == (
            "t-0: A record batch is damaged: its checksum or its structure is wrong; that is how it arrived at the "
            "broker: nothing of it is stored, and it may be sent again"
        )

    @pytest.mark.parametrize("requests_arrive", [True, False])
    def test_closing_gives_up_in_time_and_says_what_is_not_known(self, requests_arrive: bool) -> None:
        started = world()
        for line in range(len(started.lines)):
            started.stall(line)
        (sent,) = send(started, 0)
        started.requests_arrive_late = requests_arrive
        started.core.close_at_ms = started.now_ms + 100
        started.pass_time(200)
        assert isinstance(sent.error, DeliveryFailed)
        assert sent.error.may_be_written
        assert isinstance(sent.error.__cause__, ProducerClosed)
        assert started.core.is_finished

    def test_a_batch_that_others_can_still_join_lingers_and_no_other_does(self) -> None:
        started = world(linger_ms=50)
        queue, now_ms = started.queue(0), started.now_ms
        assert started.core.batch_due_ms(queue, now_ms) == now_ms, "none was begun: memory is full"
        assert started.send(0)
        assert started.core.batch_due_ms(queue, now_ms) == now_ms + 50
        started.accumulator.suspend(ProducerClosed("no more"))
        assert started.core.batch_due_ms(queue, now_ms) == now_ms, "nobody joins it any more, though it is the only one"
        started.accumulator.resume()
        started.accumulator.append_anew(queue, 0, None, b"another", (), None, now_ms)
        assert started.core.batch_due_ms(queue, now_ms) == now_ms, "one is ahead of it"

    def test_nobody_lingers_while_somebody_flushes(self) -> None:
        started = world(linger_ms=50)
        assert started.send(0)
        started.accumulator.flushing = 1
        assert started.core.batch_due_ms(started.queue(0), started.now_ms) == started.now_ms


class TestNews:
    def test_of_memory_that_came_free_is_told_with_every_setting_of_acks(self) -> None:
        for acks in (0, 1, -1):
            started = world(acks=acks)
            told: list[int] = []
            started.core._on_news = lambda heard=told, one=started: heard.append(one.accumulator.used_bytes)  # type: ignore[misc]
            send(started, 0)
            settle(started, 100)
            assert told[-1] == 0, acks

    def test_of_memory_that_came_free_by_time_alone_is_told(self) -> None:
        started = world()
        for node_id in (0, 1, 2):
            started.cluster.stop(node_id)
        started._notice_ended()
        send(started, 0)
        told: list[int] = []
        started.core._on_news = lambda: told.append(started.accumulator.used_bytes)
        started.pass_time(started.config.delivery_timeout_ms + 200)
        assert told[-1] == 0

    def test_of_a_bug_comes_when_all_is_decided(self) -> None:
        started = world()
        (sent,) = send(started, 0)
        finished: list[bool] = []
        started.core._on_news = lambda: finished.append(started.core.is_finished)
        started.core.failed(ZeroDivisionError("a bug"))
        assert finished == [True]
        assert "a bug" in str(sent.error)
        assert started.accumulator.is_closed
