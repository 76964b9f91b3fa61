"""Each row of "the broker's answer to an append", and the transactions behind it."""

from __future__ import annotations

import logging
import sys
import tracemalloc

import pytest

from oncelog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from oncelog.log import producer_state
from oncelog.log.producer_state import (
    APPEND,
    KEPT_BATCHES,
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    Decision,
    Duplicate,
    ProducerEntry,
    ProducerStateManager,
)
from oncelog.records.batch import BatchHeader, ControlMarker
from oncelog.types import MAX_SEQUENCE, TopicPartition

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
COMMIT, ABORT = ControlMarker(commit=True, coordinator_epoch=0), ControlMarker(commit=False, coordinator_epoch=0)
TRANSACTIONAL, CONTROL = 0x10, 0x20
DAY_MS = 86_400_000


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    attributes: int = 0,
    timestamp: int = 1_000,
    base_offset: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        size_bytes=61 + 10 * count,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def marker_batch(*, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return batch(-1, producer_id=producer_id, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)


class Partition:
    """A log that only counts offsets, around the state under test."""

    def __init__(self) -> None:
        self.state = ProducerStateManager(TopicPartition("orders", 3))
        self.end_offset = 0
        self.mono_ms = 1_000

    def append(self, header: BatchHeader, origin: AppendOrigin = CLIENT, **options: bool | int) -> Decision:
        decision = self.state.check(header, origin, **options)  # type: ignore[arg-type]
        if decision is APPEND:
            self.state.update(header, self.end_offset, header.max_timestamp, self.mono_ms)
            self.end_offset += header.last_offset_delta + 1
        return decision

    def mark(
        self,
        marker: ControlMarker = COMMIT,
        *,
        epoch: int = 0,
        producer_id: int = 7,
        origin: AppendOrigin = COORDINATOR,
        transaction_version: int = 1,
        timestamp: int = 2_000,
    ) -> CompletedTransaction | None:
        header = marker_batch(epoch=epoch, producer_id=producer_id)
        self.state.check_marker(header, marker, origin, transaction_version=transaction_version)
        completed = self.state.complete_transaction(header, marker, self.end_offset, timestamp, self.mono_ms)
        self.end_offset += 1
        return completed

    def refuses(self, error: type[KafkaError], header: BatchHeader, **options: AppendOrigin | bool | int) -> str:
        before = repr(list(self.state.entries())), self.end_offset
        with pytest.raises(error) as caught:
            self.append(header, **options)  # type: ignore[arg-type]
        assert (repr(list(self.state.entries())), self.end_offset) == before
        return caught.value.message


@pytest.fixture
def partition() -> Partition:
    return Partition()


class TestSequences:
    def test_batches_in_sequence_are_appended(self, partition: Partition) -> None:
        for sequence in (0, 3, 6):
            assert partition.append(batch(sequence, 3)) is APPEND
        assert partition.end_offset == 9

    def test_each_of_the_last_five_batches_is_recognised_with_its_offset_and_timestamp(
        self, partition: Partition
    ) -> None:
        for i in range(6):
            partition.append(batch(2 * i, 2, timestamp=100 + i))
        for i in range(1, 6):
            expected = BatchMetadata(2 * i, 2 * i + 1, 2 * i, 2 * i + 1, 100 + i)
            assert partition.append(batch(2 * i, 2, timestamp=9_999)) == Duplicate(expected)
        assert partition.end_offset == 12

    def test_a_duplicate_older_than_the_kept_batches_is_out_of_order(self, partition: Partition) -> None:
        for sequence in range(KEPT_BATCHES + 1):
            partition.append(batch(sequence))
        partition.refuses(OutOfOrderSequenceNumber, batch(0))

    @pytest.mark.parametrize(("sequence", "count"), [(0, 2), (1, 2), (2, 3), (1, 3), (2, 1), (0, 6)])
    def test_partial_overlap_is_out_of_order(self, partition: Partition, sequence: int, count: int) -> None:
        partition.append(batch(0, 3))
        partition.append(batch(3, 3))
        partition.refuses(OutOfOrderSequenceNumber, batch(sequence, count))

    def test_a_gap_is_out_of_order_and_the_message_names_the_expected_sequence(self, partition: Partition) -> None:
        partition.append(batch(0, 3))
        message = partition.refuses(OutOfOrderSequenceNumber, batch(4))
        assert "expected sequence 3" in message
        assert "orders-3" in message

    def test_the_sequence_wraps_between_batches(self, partition: Partition) -> None:
        partition.append(batch(MAX_SEQUENCE - 1, 2))
        partition.refuses(OutOfOrderSequenceNumber, batch(1))
        assert partition.append(batch(0)) is APPEND

    def test_the_sequence_wraps_inside_a_batch(self, partition: Partition) -> None:
        wrapping = batch(MAX_SEQUENCE - 1, 4)
        assert partition.append(wrapping) is APPEND
        assert partition.append(wrapping) == Duplicate(BatchMetadata(MAX_SEQUENCE - 1, 1, 0, 3, 1_000))
        partition.refuses(OutOfOrderSequenceNumber, batch(1))
        assert partition.append(batch(2)) is APPEND

    def test_an_unknown_producer_may_start_anywhere(self, partition: Partition) -> None:
        assert partition.append(batch(41)) is APPEND
        partition.refuses(OutOfOrderSequenceNumber, batch(43))
        assert partition.append(batch(42)) is APPEND

    def test_producers_do_not_disturb_each_other(self, partition: Partition) -> None:
        partition.append(batch(0, producer_id=1))
        partition.append(batch(0, producer_id=2))
        assert partition.append(batch(1, producer_id=1)) is APPEND
        assert isinstance(partition.append(batch(0, producer_id=2)), Duplicate)

    def test_a_batch_without_a_producer_id_leaves_no_trace(self, partition: Partition) -> None:
        assert partition.append(batch(-1, producer_id=-1, epoch=-1)) is APPEND
        assert len(partition.state) == 0


class TestEpochs:
    def test_a_lower_epoch_is_fenced(self, partition: Partition) -> None:
        partition.append(batch(0, epoch=2))
        partition.refuses(InvalidProducerEpoch, batch(1, epoch=1))

    def test_a_repeat_of_an_older_epoch_is_fenced_not_a_duplicate(self, partition: Partition) -> None:
        partition.append(batch(0, epoch=1))
        partition.append(batch(0, epoch=2))
        partition.refuses(InvalidProducerEpoch, batch(0, epoch=1))

    def test_a_higher_epoch_starts_at_sequence_zero(self, partition: Partition) -> None:
        partition.append(batch(0, 4, epoch=1))
        partition.refuses(OutOfOrderSequenceNumber, batch(4, epoch=2))
        assert partition.append(batch(0, 2, epoch=2)) is APPEND
        assert partition.append(batch(0, 2, epoch=2)) == Duplicate(BatchMetadata(0, 1, 4, 5, 1_000))


class TestOrigins:
    def test_the_coordinator_is_judged_by_epoch_only(self, partition: Partition) -> None:
        partition.append(batch(-1, epoch=1), COORDINATOR)
        assert partition.append(batch(-1, epoch=1), COORDINATOR) is APPEND
        assert partition.append(batch(99, epoch=2), COORDINATOR) is APPEND
        partition.refuses(InvalidProducerEpoch, batch(-1, epoch=1), origin=COORDINATOR)

    def test_replication_is_never_refused_but_a_lower_epoch_is_logged(
        self, partition: Partition, caplog: pytest.LogCaptureFixture
    ) -> None:
        partition.append(batch(0, epoch=3), REPLICATION)
        assert partition.append(batch(77, epoch=3), REPLICATION) is APPEND
        assert partition.append(batch(77, epoch=3), REPLICATION) is APPEND
        assert not caplog.records
        with caplog.at_level(logging.WARNING):
            assert partition.append(batch(0, epoch=2), REPLICATION) is APPEND
        assert "the epoch is < the current 3" in caplog.text


class TestTransactions:
    def test_a_transactional_batch_opens_a_transaction_and_a_marker_completes_it(self, partition: Partition) -> None:
        partition.append(batch(0, producer_id=1))
        partition.append(batch(0, 2, attributes=TRANSACTIONAL))
        partition.append(batch(2, 2, attributes=TRANSACTIONAL))
        assert partition.state.first_undecided_offset == 1
        assert partition.mark(ABORT) == CompletedTransaction(7, 1, 5, is_aborted=True, last_stable_offset=6)
        assert partition.state.first_undecided_offset is None
        partition.append(batch(4, attributes=TRANSACTIONAL))
        assert partition.mark(COMMIT) == CompletedTransaction(7, 6, 7, is_aborted=False, last_stable_offset=8)

    def test_a_marker_without_data_completes_nothing(self, partition: Partition) -> None:
        assert partition.mark() is None
        entry = partition.state.entry(7)
        assert entry is not None
        assert (entry.epoch, list(entry.batches), entry.last_timestamp) == (0, [], 2_000)

    def test_sequences_go_on_after_a_marker_of_the_same_epoch(self, partition: Partition) -> None:
        partition.append(batch(0, 2, attributes=TRANSACTIONAL))
        partition.mark()
        assert isinstance(partition.append(batch(0, 2, attributes=TRANSACTIONAL)), Duplicate)
        partition.refuses(OutOfOrderSequenceNumber, batch(0, attributes=TRANSACTIONAL))
        assert partition.append(batch(2, attributes=TRANSACTIONAL)) is APPEND

    def test_sequences_start_over_after_a_marker_of_a_higher_epoch(self, partition: Partition) -> None:
        partition.append(batch(0, 2, attributes=TRANSACTIONAL))
        partition.mark(epoch=1, transaction_version=2)
        partition.refuses(OutOfOrderSequenceNumber, batch(2, epoch=1, attributes=TRANSACTIONAL))
        assert partition.append(batch(0, epoch=1, attributes=TRANSACTIONAL)) is APPEND

    def test_a_non_transactional_batch_during_a_transaction_is_refused(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        for origin in (CLIENT, COORDINATOR):
            message = partition.refuses(InvalidTxnState, batch(1), origin=origin)
            assert "began at offset 0" in message
        partition.refuses(InvalidTxnState, batch(0, epoch=1))

    def test_an_unverified_transactional_batch_is_refused_unless_its_transaction_is_open(
        self, partition: Partition
    ) -> None:
        partition.refuses(InvalidTxnState, batch(0, attributes=TRANSACTIONAL), verified=False)
        partition.append(batch(0, attributes=TRANSACTIONAL), verified=True)
        assert partition.append(batch(1, attributes=TRANSACTIONAL), verified=False) is APPEND
        partition.refuses(InvalidTxnState, batch(0, epoch=1, attributes=TRANSACTIONAL), verified=False)
        partition.mark()
        partition.refuses(InvalidTxnState, batch(2, attributes=TRANSACTIONAL), verified=False)
        assert isinstance(partition.append(batch(1, attributes=TRANSACTIONAL), verified=False), Duplicate)
        assert partition.append(batch(-1, attributes=TRANSACTIONAL), COORDINATOR, verified=False) is APPEND

    def test_an_unknown_transactional_producer_starts_anywhere_under_v1_and_at_zero_under_v2(
        self, partition: Partition
    ) -> None:
        partition.refuses(OutOfOrderSequenceNumber, batch(5, attributes=TRANSACTIONAL), transaction_version=2)
        assert partition.append(batch(5, attributes=TRANSACTIONAL), transaction_version=1) is APPEND
        assert partition.append(batch(5, producer_id=8), transaction_version=2) is APPEND

    def test_last_stable_offset_of_a_completed_transaction_is_the_next_open_one(self, partition: Partition) -> None:
        partition.append(batch(0, producer_id=1, attributes=TRANSACTIONAL))
        partition.append(batch(0, producer_id=2, attributes=TRANSACTIONAL))
        completed = partition.mark(ABORT, producer_id=1)
        assert completed is not None
        assert completed.last_stable_offset == 1
        completed = partition.mark(ABORT, producer_id=2)
        assert completed is not None
        assert completed.last_stable_offset == 4


class TestMarkers:
    def test_a_lower_epoch_is_fenced(self, partition: Partition) -> None:
        partition.append(batch(0, epoch=2, attributes=TRANSACTIONAL))
        with pytest.raises(InvalidProducerEpoch):
            partition.mark(epoch=1)

    def test_an_older_coordinator_is_fenced_except_through_replication(self, partition: Partition) -> None:
        partition.mark(ControlMarker(commit=True, coordinator_epoch=5))
        with pytest.raises(TransactionCoordinatorFenced):
            partition.mark(ControlMarker(commit=True, coordinator_epoch=4))
        partition.mark(ControlMarker(commit=True, coordinator_epoch=5))
        partition.mark(ControlMarker(commit=True, coordinator_epoch=4), origin=REPLICATION)

    def test_under_v1_the_marker_carries_the_current_epoch(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        assert partition.mark(epoch=0, transaction_version=1) is not None

    def test_under_v2_the_marker_needs_a_higher_epoch_or_nothing_open(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        with pytest.raises(InvalidProducerEpoch):
            partition.mark(epoch=0, transaction_version=2)
        assert partition.mark(epoch=1, transaction_version=2) is not None
        assert partition.mark(epoch=1, transaction_version=2) is None  # a repeat, written again
        partition.append(batch(0, epoch=1, attributes=TRANSACTIONAL))
        with pytest.raises(InvalidProducerEpoch):
            partition.mark(epoch=1, transaction_version=2)
        with pytest.raises(InvalidProducerEpoch):
            partition.mark(epoch=0, transaction_version=2)


class TestStability:
    def test_a_completed_transaction_stays_unstable_until_its_marker_is_replicated(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        partition.mark()  # at offset 1
        partition.state.on_high_watermark(1)
        assert partition.state.first_unstable_offset == 0
        partition.state.on_high_watermark(2)
        assert partition.state.first_unstable_offset is None

    def test_the_lowest_of_open_and_unreplicated_transactions_counts(self, partition: Partition) -> None:
        for producer_id in (1, 2, 3):  # offsets 0, 1, 2
            partition.append(batch(0, producer_id=producer_id, attributes=TRANSACTIONAL))
        partition.mark(producer_id=2)  # offset 3
        partition.mark(producer_id=1)  # offset 4
        assert partition.state.first_undecided_offset == 2
        assert partition.state.first_unstable_offset == 0
        partition.state.on_high_watermark(4)  # the marker of 2 is replicated, that of 1 is not
        assert partition.state.first_unstable_offset == 0
        partition.state.on_high_watermark(5)
        assert partition.state.first_unstable_offset == 2

    def test_deleted_transactions_are_released(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        partition.mark()
        partition.state.on_log_start_offset(2)
        assert partition.state.first_unstable_offset is None
        assert len(partition.state) == 1


class TestExpiry:
    @pytest.mark.parametrize("timestamp", [0, 1_000, 100 * DAY_MS])
    def test_a_silent_producer_is_forgotten_exactly_when_due(self, partition: Partition, timestamp: int) -> None:
        """Counted from the append, whatever time the records are of."""
        partition.append(batch(0, timestamp=timestamp))
        assert partition.state.expire(1_000 + DAY_MS - 1) == []
        assert partition.state.expire(1_000 + DAY_MS) == [7]
        assert partition.append(batch(12)) is APPEND

    def test_an_open_transaction_keeps_its_producer(self, partition: Partition) -> None:
        partition.append(batch(0, attributes=TRANSACTIONAL))
        assert partition.state.expire(100 * DAY_MS) == []
        partition.mono_ms = 200 * DAY_MS
        partition.mark(timestamp=2_000)
        assert partition.state.expire(201 * DAY_MS - 1) == [], "its marker was written just now"
        assert partition.state.expire(201 * DAY_MS) == [7]

    def test_the_limit_can_change(self, partition: Partition) -> None:
        partition.append(batch(0, timestamp=1_000))
        partition.state.producer_id_expiration_ms = 10
        assert partition.state.expire(1_010) == [7]


class TestLoading:
    def test_load_replaces_everything(self, partition: Partition) -> None:
        partition.append(batch(0, producer_id=1, attributes=TRANSACTIONAL))
        partition.append(batch(0, producer_id=2, attributes=TRANSACTIONAL))
        partition.mark(producer_id=2)
        entries = [
            ProducerEntry(10, 0, batches=[BatchMetadata(0, 0, 9, 9, 50)], last_appended_ms=50),
            ProducerEntry(11, 0, last_appended_ms=DAY_MS),
            ProducerEntry(12, 0, last_appended_ms=50, current_transaction_first_offset=8),
            ProducerEntry(13, 0, last_appended_ms=50, current_transaction_first_offset=3),
            ProducerEntry(14, -1, last_appended_ms=DAY_MS),
        ]
        partition.state.load(entries)
        assert [entry.producer_id for entry in partition.state.entries()] == [10, 11, 12, 13]
        assert partition.state.first_unstable_offset == 3
        assert partition.state.expire(50 + DAY_MS) == [10], "its silence goes on"

    def test_replay_rebuilds_what_appending_built(self, partition: Partition) -> None:
        headers = [
            (batch(0, 3, base_offset=0), None),
            (batch(3, base_offset=3, attributes=TRANSACTIONAL), None),
            (batch(0, producer_id=8, base_offset=4, attributes=TRANSACTIONAL), None),
            (marker_batch()._replace(base_offset=5), ABORT),
        ]
        for header, marker in headers:
            partition.append(header) if marker is None else partition.mark(marker, timestamp=header.max_timestamp)
        replayed = Partition()
        completed = [replayed.state.replay(header, marker, 1_000) for header, marker in headers]
        assert repr(list(replayed.state.entries())) == repr(list(partition.state.entries()))
        assert completed == [None, None, None, CompletedTransaction(7, 3, 5, is_aborted=True, last_stable_offset=4)]
        assert replayed.state.first_undecided_offset == 4

    def test_a_control_batch_that_compaction_emptied_changes_nothing(self, partition: Partition) -> None:
        assert partition.state.replay(marker_batch(), None, 1_000) is None
        assert len(partition.state) == 0


class TestMemory:
    def test_of_earlier_batches_four_stay_whatever_their_numbers(self) -> None:
        entry = ProducerEntry(2**62, 2**15 - 1)
        written = [
            BatchMetadata(sequence, (sequence + 2) % (MAX_SEQUENCE + 1), 2**61 + index * 3, 2**61 + index * 3 + 2, -1)
            for index, sequence in enumerate((MAX_SEQUENCE - 7, MAX_SEQUENCE - 4, MAX_SEQUENCE - 1, 2, 5, 8, 11))
        ]
        for count, metadata in enumerate(written, 1):
            entry.remember(*metadata)
            assert entry.batches == written[max(0, count - KEPT_BATCHES) : count]
        assert entry.next_sequence == 14
        assert entry.find_duplicate(2, 4) == written[3]
        assert entry.find_duplicate(MAX_SEQUENCE - 4, MAX_SEQUENCE - 2) is None
        entry.begin_epoch(3)
        assert (entry.batches, entry.next_sequence) == ([], 0)

    def test_what_a_producer_costs(self) -> None:
        """The bytes of a thousand more, each with as many batches as are kept. Compiled it is a fifth of what a deque
        of tuples took; as Python, two thirds."""
        bytes_per_producer = (_bytes_of_producers(2_000) - _bytes_of_producers(1_000)) / 1_000
        compiled = not producer_state.__file__.endswith(".py")
        assert bytes_per_producer < (450 if compiled else 1_100)

    def test_a_forgotten_producer_costs_nothing(self) -> None:
        """Thousands that came and went leave as much as hundreds. A leak would be 100 bytes or more for each."""
        few, many = (_bytes_after_generations(generations) for generations in (5, 50))
        assert many - few < 45 * 100 * 10


def _bytes_of_producers(count: int) -> int:
    """That a partition holds for them, but for the room that its dictionary keeps free."""
    headers = [[batch(sequence, producer_id=10**9 + each) for sequence in range(5)] for each in range(count)]
    tracemalloc.start()
    try:
        manager = ProducerStateManager(TopicPartition("t", 0))
        before = tracemalloc.get_traced_memory()[0]
        for index, header in enumerate(one for of_producer in headers for one in of_producer):
            manager.update(header, 10**9 + index, 10**12 + index, 10**12 + index)
        return tracemalloc.get_traced_memory()[0] - before - sys.getsizeof(dict.fromkeys(range(count)))
    finally:
        tracemalloc.stop()


def _bytes_after_generations(generations: int) -> int:
    """A hundred producers at a time, each forgotten before the next come."""
    manager = ProducerStateManager(TopicPartition("t", 0), producer_id_expiration_ms=1_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for generation in range(generations):
            mono_ms = 10**12 + generation * 1_000
            for index in range(100):
                offset = generation * 100 + index
                manager.update(batch(0, producer_id=10**9 + offset), offset, mono_ms, mono_ms)
            manager.expire(mono_ms + 1_000)
        assert len(manager) == 0
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
