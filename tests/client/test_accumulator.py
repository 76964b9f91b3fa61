"""Records that wait: which batch they join, in what order they leave, and that memory is counted and given back."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.accumulator import RecordTooLarge
from oncelog.client.batch import ProducerBatch
from oncelog.client.producer_errors import ProducerClosed
from tests.client.accumulating import NOW_MS, TOPIC, accumulator, batches, learned, put, record

LARGE = b"x" * 5_000


class TestAppending:
    def test_joins_the_open_batch_only(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        assert memory.append(queue, *record()) is None  # there is none
        assert memory.append_anew(queue, *record(), NOW_MS) is not None
        assert memory.append(queue, *record()) is not None
        assert [batch.record_count for batch in queue.batches] == [2]

    def test_begins_another_batch_when_the_last_is_full(self) -> None:
        memory = accumulator(batch_size=500)
        queue = learned(memory).queues[0]
        for _ in range(6):
            put(memory, queue, b"x" * 220)
        assert [batch.record_count for batch in queue.batches] == [1, 1, 1, 1, 1, 1]
        assert all(batch.size_bytes <= 500 for batch in queue.batches)
        assert [batch.is_open for batch in queue.batches][-1]
        assert not any(batch.is_open for batch in list(queue.batches)[:-1])

    def test_with_batch_size_0_sends_each_record_alone(self) -> None:
        memory = accumulator(batch_size=0)
        queue = learned(memory).queues[0]
        for _ in range(3):
            put(memory, queue)
        assert [batch.record_count for batch in queue.batches] == [1, 1, 1]

    def test_takes_a_record_larger_than_a_batch_into_one_of_its_own(self) -> None:
        memory = accumulator(batch_size=100)
        queue = learned(memory).queues[0]
        put(memory, queue, b"x" * 3_000)
        assert [batch.record_count for batch in queue.batches] == [1]

    @pytest.mark.parametrize("fields", [{"value": LARGE}, {"key": LARGE}, {"headers": [("h", LARGE)]}])
    def test_refuses_what_is_larger_than_a_request(self, fields: Any) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        with pytest.raises(RecordTooLarge, match=r"orders-0 is larger than max\.request\.size \(5000\); send less"):
            memory.append_anew(queue, *record(**fields), NOW_MS)
        assert not queue.batches

    def test_refuses_what_never_fits_into_memory(self) -> None:
        memory = accumulator(buffer_memory=5_000)
        with pytest.raises(RecordTooLarge, match=r"never fits into buffer\.memory \(5000\)"):
            put(memory, learned(memory).queues[0], b"x" * 4_900)

    def test_of_something_that_is_no_bytes_changes_nothing(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        put(memory, queue)
        before = (memory.used_bytes, queue.queued_bytes, queue.batches[0].record_count)
        with pytest.raises(TypeError):
            memory.append(queue, *record(headers=[("h", "text")]))
        assert (memory.used_bytes, queue.queued_bytes, queue.batches[0].record_count) == before
        assert put(memory, queue) is not None


class TestMemory:
    def test_is_never_exceeded_and_all_given_back(self) -> None:
        memory = accumulator(buffer_memory=20_000)
        queues = learned(memory, 3).queues
        count = 0
        while put(memory, queues[count % 3], b"x" * 100, on_delivery=print if count % 2 else None) is not None:
            count += 1
            assert memory.used_bytes <= 20_000
        assert count > 50
        for queue in queues:
            while queue.batches:
                memory.finish(queue, memory.take(queue))
            assert queue.queued_bytes == 0
        assert memory.used_bytes == 0
        assert memory.available_bytes == 20_000
        assert not memory.incomplete
        assert put(memory, queues[0]) is not None

    def test_counts_at_least_the_bytes_that_leave(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        for _ in range(50):
            put(memory, queue, b"x" * 50)
        leaving = sum(len(batch.sealed(0, None)) for batch in queue.batches)
        assert memory.used_bytes >= leaving

    def test_that_is_full_still_closes_the_open_batch_so_that_it_leaves(self) -> None:
        memory = accumulator(buffer_memory=3_000)
        queue = learned(memory).queues[0]
        while put(memory, queue, b"x" * 100) is not None:
            pass
        assert queue.open is None
        assert not queue.batches[-1].is_open

    def test_is_counted_right_by_many_threads(self) -> None:
        memory = accumulator(buffer_memory=10_000_000)
        queues = learned(memory, 4).queues

        def send_many(number: int) -> None:
            for _ in range(500):
                put(memory, queues[number % 4], b"x" * 20)

        threads = [threading.Thread(target=send_many, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(batch.record_count for queue in queues for batch in queue.batches) == 4_000
        assert memory.used_bytes == sum(queue.queued_bytes for queue in queues)
        assert memory.used_bytes == sum(batch.charged_bytes for batch in memory.incomplete)


class TestTheQueue:
    def test_gives_the_head_closed(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        put(memory, queue)
        batch = memory.take(queue)
        assert not batch.is_open
        assert queue.open is None
        put(memory, queue)
        assert queue.batches[0] is not batch

    def test_takes_back_before_what_was_sent_later_and_behind_what_was_sent_before(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        made = batches(memory, queue, 5)
        for ordinal in range(3):
            memory.take(queue).ordinal = ordinal
        for ordinal in (1, 2, 0):  # whatever the order of their answers
            memory.put_back(queue, made[ordinal])
        assert list(queue.batches) == made

    def test_takes_parts_in_the_place_of_the_whole(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        for value in (b"a", b"b", b"c"):
            put(memory, queue, value)
        (later,) = batches(memory, queue, 1)
        whole = memory.take(queue)
        whole.ordinal = 0
        whole.sealed(0, None)
        charged = memory.used_bytes
        parts = whole.split(0, None)
        memory.put_back_parts(queue, whole, parts)
        assert list(queue.batches) == [*parts, later]
        assert set(memory.incomplete) == {*parts, later}
        assert memory.used_bytes == charged
        for batch in (*parts, later):
            memory.finish(queue, batch)
        assert memory.used_bytes == 0

    def test_drops_the_open_batch_too(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        put(memory, queue)
        memory.drop(queue, queue.batches[0])
        assert queue.open is None
        assert not queue.batches

    def test_names_every_delivery_without_a_result(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        first, second = batches(memory, queue, 2)
        memory.take(queue)
        assert memory.undelivered() == [first.delivery, second.delivery]
        memory.finish(queue, first)
        assert memory.undelivered() == [second.delivery]


class TestClosing:
    def test_waits_until_every_record_has_its_result(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        put(memory, queue)
        assert not memory.close_if_complete()
        put(memory, queue)
        memory.finish(queue, memory.take(queue))
        assert memory.close_if_complete()

    def test_begins_no_batch_afterwards(self) -> None:
        memory = accumulator()
        queue = learned(memory).queues[0]
        memory.close()
        with pytest.raises(ProducerClosed):
            put(memory, queue)
        assert memory.used_bytes == 0
        assert not memory.incomplete


class TestPartitions:
    def test_are_kept_with_their_records_when_metadata_comes_again(self) -> None:
        memory = accumulator()
        queue = learned(memory, 2).queues[1]
        put(memory, queue)
        topic = learned(memory, leaders=(5, 6, 7))
        assert memory.topics[TOPIC] is topic
        assert topic.queues[1] is queue
        assert [one.leader for one in topic.queues] == [5, 6, 7]
        assert len(queue.batches) == 1

    def test_grow_all_at_once(self) -> None:
        memory = accumulator()
        topic = learned(memory, 2)
        seen: list[int] = []

        def partitions() -> Any:
            for index in range(6):
                seen.append(len(topic.queues))
                yield index, None, 1, 0

        memory.learn_partitions(TOPIC, partitions())
        assert set(seen) == {2}
        assert len(topic.queues) == 6


@given(st.lists(st.sampled_from(["begin", "take", "put back", "drop"]), max_size=40), st.randoms(use_true_random=False))
def test_the_head_of_a_queue_is_its_first_batch_whatever_happens(steps: list[str], chance: Random) -> None:
    memory = accumulator()
    queue = learned(memory).queues[0]
    taken: list[ProducerBatch] = []
    for step in steps:
        if step == "begin":
            memory.append_anew(queue, *record(), NOW_MS)
        elif step == "take" and queue.batches:
            batch = memory.take(queue)
            if batch.ordinal < 0:
                batch.ordinal = queue.next_ordinal
                queue.next_ordinal += 1
            taken.append(batch)
        elif step == "put back" and taken:
            memory.put_back(queue, taken.pop(chance.randrange(len(taken))))
        elif step == "drop" and queue.batches:
            memory.drop(queue, chance.choice(list(queue.batches)))
        assert queue.head is (queue.batches[0] if queue.batches else None)
        sent = [batch.ordinal for batch in queue.batches if batch.ordinal >= 0]
        assert sent == sorted(sent)
