"""Who is numbered when: sequences without gaps, numbers that stay, and bumps that wait for every unknown fate."""

from __future__ import annotations

import pytest

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.idempotence import REMEMBERED_BATCHES, Idempotence, Identity
from oncelog.types import MAX_PRODUCER_EPOCH
from tests.client.accumulating import accumulator, batches, learned

ID = 7


class Scene:
    """Partitions with batches that wait; `send` and the fates do what the sender does."""

    def __init__(self, partitions: int = 1, waiting: int = 8) -> None:
        self.memory = accumulator()
        self.queues = learned(self.memory, partitions).queues
        self.made = [batches(self.memory, queue, waiting) for queue in self.queues]
        self.numbers = Idempotence()
        self.numbers.learn(ID, 0)

    def may_send(self, partition: int = 0) -> bool:
        queue = self.queues[partition]
        return self.numbers.may_send(queue, queue.batches[0])

    def send(self, partition: int = 0) -> ProducerBatch:
        queue = self.queues[partition]
        assert self.may_send(partition)
        batch = self.memory.take(queue)
        if not batch.is_numbered:
            self.numbers.number(queue, batch)
        if batch.ordinal < 0:
            batch.ordinal = queue.next_ordinal
            queue.next_ordinal += 1
        batch.is_in_flight = True
        batch.was_first_in_line = queue.unsettled[0] is batch
        return batch

    def store(self, batch: ProducerBatch) -> None:
        batch.is_in_flight = False
        self.numbers.stored(self.queue_of(batch), batch)

    def lose(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """No answer, or a refusal: to be sent again."""
        batch.is_in_flight = False
        batch.may_be_written |= may_be_written
        self.memory.put_back(self.queue_of(batch), batch)

    def give_up(self, batch: ProducerBatch) -> None:
        batch.is_in_flight = False
        queue = self.queue_of(batch)
        if batch in queue.batches:
            self.memory.drop(queue, batch)
        self.numbers.gave_up(queue, batch, "a test")

    def bump(self) -> bool:
        return self.numbers.bump(self.queues)

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        return self.queues[batch.partition]

    def warm_up(self, partition: int = 0) -> None:
        """The broker knows the producer."""
        self.store(self.send(partition))


class TestNumbers:
    def test_need_an_id(self) -> None:
        scene = Scene()
        scene.numbers.identity = None
        assert scene.numbers.wants_id
        assert not scene.may_send()

    def test_count_records_and_begin_at_0_in_every_partition(self) -> None:
        scene = Scene(partitions=2)
        scene.made[0][0].record_count = 5
        positions = []
        for partition in (0, 0, 1):
            batch = scene.send(partition)
            positions.append((batch.producer_id, batch.producer_epoch, batch.position))
            scene.store(batch)
        assert positions == [(ID, 0, 0), (ID, 0, 5), (ID, 0, 0)]

    def test_the_first_batch_of_an_id_goes_alone(self) -> None:
        scene = Scene()
        first = scene.send()
        assert not scene.may_send()
        scene.store(first)
        assert scene.may_send()

    def test_no_more_go_than_a_broker_remembers(self) -> None:
        scene = Scene()
        scene.warm_up()
        sent = [scene.send() for _ in range(REMEMBERED_BATCHES)]
        assert not scene.may_send()
        for later in sent[1:]:  # settled ones behind the oldest count too: the broker remembers them, and forgets it
            scene.store(later)
        assert not scene.may_send()
        scene.store(sent[0])
        assert scene.may_send()

    def test_a_batch_that_goes_again_keeps_its_number(self) -> None:
        scene = Scene()
        scene.warm_up()
        batch = scene.send()
        scene.lose(batch, may_be_written=True)
        assert scene.send() is batch
        assert (batch.producer_epoch, batch.position) == (0, 1)

    def test_those_behind_a_refused_one_go_one_by_one(self) -> None:
        scene = Scene()
        scene.warm_up()
        first, second = scene.send(), scene.send()
        scene.lose(second, may_be_written=False)
        assert not scene.may_send()
        scene.lose(first, may_be_written=False)
        assert scene.send() is first
        assert not scene.may_send()
        scene.store(first)
        assert scene.send() is second

    def test_that_did_not_leave_are_given_to_the_next(self) -> None:
        scene = Scene()
        scene.warm_up()
        batch = scene.send()
        scene.numbers.take_back(scene.queues[0], batch)
        assert not batch.is_numbered
        assert scene.send().position == 1


class TestGaps:
    def test_are_real_only_for_the_first_in_line(self) -> None:
        scene = Scene()
        scene.warm_up()
        first, second = scene.send(), scene.send()
        queue = scene.queues[0]
        assert scene.numbers.is_gap(queue, first)
        assert not scene.numbers.is_gap(queue, second)
        scene.store(first)
        assert not scene.numbers.is_gap(queue, second)  # when it was sent, the first was not there yet
        scene.lose(second, may_be_written=False)
        assert scene.numbers.is_gap(queue, scene.send())


class TestGivingUp:
    def test_the_last_number_can_be_given_again_if_nobody_has_seen_it(self) -> None:
        scene = Scene()
        scene.warm_up()
        batch = scene.send()
        scene.lose(batch, may_be_written=False)
        scene.give_up(batch)
        assert scene.numbers.bump_reason is None
        assert scene.send().position == 1

    @pytest.mark.parametrize("may_be_written", [True, False])
    def test_any_other_number_leaves_a_gap_and_wants_a_bump(self, may_be_written: bool) -> None:
        scene = Scene()
        scene.warm_up()
        first = scene.send()
        if not may_be_written:
            scene.send()
        scene.lose(first, may_be_written=may_be_written)
        scene.give_up(first)
        assert scene.numbers.bump_reason == "a test"


class TestABump:
    def test_starts_every_partition_again_under_the_next_epoch(self) -> None:
        scene = Scene(partitions=2)
        for partition in (0, 1):
            scene.warm_up(partition)
        scene.numbers.want_bump("a test")
        assert not scene.may_send(0)  # nothing new while one is wanted
        assert scene.bump()
        for partition in (0, 1):
            batch = scene.send(partition)
            assert (batch.producer_id, batch.producer_epoch, batch.position) == (ID, 1, 0)

    def test_renumbers_what_is_known_not_to_be_stored(self) -> None:
        scene = Scene()
        scene.warm_up()
        refused = scene.send()
        scene.lose(refused, may_be_written=False)
        scene.numbers.want_bump("a test")
        assert scene.bump()
        assert not refused.is_numbered
        assert scene.send() is refused
        assert (refused.producer_epoch, refused.position) == (1, 0)

    def test_waits_for_a_batch_of_unknown_fate_in_another_partition(self) -> None:
        """What librdkafka's open issue 4953 does not do, and so stores records twice."""
        scene = Scene(partitions=2)
        for partition in (0, 1):
            scene.warm_up(partition)
        unknown = scene.send(1)
        scene.numbers.want_bump("trouble in partition 0")
        assert not scene.bump()  # in flight
        scene.lose(unknown, may_be_written=True)
        assert not scene.bump()  # lost on the way there, or back
        assert scene.send(1) is unknown  # the one thing that goes on, under its old number
        assert (unknown.producer_epoch, unknown.position) == (0, 1)
        assert not scene.bump()
        scene.store(unknown)
        assert scene.bump()

    def test_does_not_send_what_is_surely_unwritten_before_it(self) -> None:
        scene = Scene()
        scene.warm_up()
        scene.lose(scene.send(), may_be_written=False)
        scene.numbers.want_bump("a test")
        assert not scene.may_send()

    def test_takes_a_new_id_where_the_epochs_end(self) -> None:
        scene = Scene()
        scene.numbers.learn(ID, MAX_PRODUCER_EPOCH)
        scene.numbers.want_bump("a test")
        assert scene.bump()
        assert scene.numbers.wants_id

    def test_takes_a_new_id_where_the_old_one_was_fenced(self) -> None:
        scene = Scene()
        scene.numbers.want_bump("a test")
        scene.numbers.want_bump("fenced", new_id=True)
        assert scene.numbers.bump_reason == "a test"  # what began it
        assert scene.bump()
        assert scene.numbers.wants_id
        scene.numbers.learn(8, 0)
        scene.numbers.want_bump("another")
        assert scene.bump()
        assert scene.numbers.identity == Identity(8, 1)

    def test_is_not_done_where_none_is_wanted(self) -> None:
        scene = Scene()
        assert not scene.bump()
        assert scene.numbers.bumps == 0

    def test_follows_the_batches_of_an_earlier_process(self) -> None:
        scene = Scene()
        queue = scene.queues[0]
        adopted = queue.batches[0]
        adopted.number(3, 9, 40)
        adopted.may_be_written = True
        adopted.ordinal = 0
        queue.next_ordinal = 1
        queue.unsettled.append(adopted)
        scene.numbers.adopt(Identity(3, 9))
        assert scene.send() is adopted
        assert (adopted.producer_id, adopted.producer_epoch, adopted.position) == (3, 9, 40)
        assert not scene.bump()
        scene.store(adopted)
        assert scene.bump()
        assert scene.numbers.wants_id
