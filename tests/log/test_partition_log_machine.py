"""A partition log against a list: whatever is appended, repeated, deleted, damaged or crashed, the two agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.errors import KafkaStorageError, OutOfOrderSequenceNumber
from oncelog.log.config import LogConfig
from oncelog.log.partition_log import PartitionLog
from oncelog.log.producer_state import KEPT_BATCHES
from oncelog.log.recovery import DamagedLog
from oncelog.records.batch import ControlMarker
from tests.log.driver import DIRECTORY, PARTITION, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyStorage
from tests.support.sizes import examples

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=120,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
PRODUCERS = st.integers(min_value=1, max_value=3)
TRANSACTIONAL_PRODUCER = 9


class Stored:
    """What the model knows of a producer: its batches as (sequence, values, base offset)."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.batches: list[tuple[int, list[bytes], int]] = []


class PartitionLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage = FaultyStorage()
        self.now_ms = START_MS
        self.values: list[bytes | None] = []  # by offset; None for a marker
        self.producers: dict[int, Stored] = {}
        self.retired = 0
        """A producer that the log may have forgotten comes back under another id; this counts them."""
        self.aborted: list[tuple[int, int, int]] = []
        self.flipped: set[str] = set()  # snapshots damaged behind the log's back, noticed or not
        self.half_known: set[int] = set()  # markers of aborted transactions that began in a segment that is gone
        self.transaction: int | None = None  # first offset
        self.transactional_sequence = 0
        self.start_offset = 0
        self.flushed_offset = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> PartitionLog:
        log = PartitionLog.open(
            self.storage,
            DIRECTORY,
            PARTITION,
            CONFIG,
            now_ms=self.now_ms,
            clean=clean,
            recovery_point=self.flushed_offset,
            log_start_offset=self.start_offset,
        )
        log.advance_high_watermark(log.log_end_offset)
        self.flipped.intersection_update(self.storage.paths(".snapshot"))
        return log

    # --- writing ---

    @rule(producer_id=PRODUCERS, count=st.integers(1, 4), size=st.integers(0, 120))
    def append(self, producer_id: int, count: int, size: int) -> None:
        producer_id += 1000 * self.retired
        known = self.producers.setdefault(producer_id, Stored())
        offset = len(self.values)
        values = [b"%d-%d " % (producer_id, known.next_sequence + index) + b"." * size for index in range(count)]
        batch = make_batch(values, producer_id=producer_id, sequence=known.next_sequence, timestamp_ms=self.now_ms)
        appended = append(self.log, batch, self.now_ms)
        assert (appended.base_offset, appended.duplicate) == (offset, False)
        known.batches.append((known.next_sequence, values, offset))
        known.next_sequence += count
        self.wrote(values)

    @rule(count=st.integers(1, 3))
    def append_without_producer(self, count: int) -> None:
        values = [b"anonymous"] * count
        assert append(self.log, make_batch(values, timestamp_ms=self.now_ms)).base_offset == len(self.values)
        self.wrote(values)

    def wrote(self, values: list[bytes] | list[None]) -> None:
        self.values += values
        self.now_ms += 10
        self.log.advance_high_watermark(self.log.log_end_offset)

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def repeat_a_batch(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.producers)))
        batches = self.producers[producer_id].batches
        if not batches:
            return
        age = data.draw(st.integers(1, min(len(batches), KEPT_BATCHES + 2)))
        sequence, values, offset = batches[-age]
        batch = make_batch(values, producer_id=producer_id, sequence=sequence, timestamp_ms=self.now_ms)
        if age <= KEPT_BATCHES:
            repeated = append(self.log, batch, self.now_ms)
            assert (repeated.base_offset, repeated.duplicate) == (offset, True)
        else:
            with pytest.raises(OutOfOrderSequenceNumber):
                append(self.log, batch, self.now_ms)

    @precondition(lambda self: any(known.batches for known in self.producers.values()))
    @rule(data=st.data())
    def leave_a_gap(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from([key for key, known in self.producers.items() if known.batches]))
        sequence = self.producers[producer_id].next_sequence + 1
        with pytest.raises(OutOfOrderSequenceNumber):
            append(self.log, make_batch([b"x"], producer_id=producer_id, sequence=sequence), self.now_ms)

    @rule()
    def append_in_a_transaction(self) -> None:
        batch = make_batch(
            [b"in a transaction"],
            producer_id=TRANSACTIONAL_PRODUCER,
            sequence=self.transactional_sequence,
            timestamp_ms=self.now_ms,
            transactional=True,
        )
        offset = append(self.log, batch, self.now_ms).base_offset
        assert offset == len(self.values)
        self.transactional_sequence += 1
        if self.transaction is None:
            self.transaction = offset
        self.wrote([b"in a transaction"])

    @precondition(lambda self: self.transaction is not None)
    @rule(commit=st.booleans())
    def end_the_transaction(self, commit: bool) -> None:
        appended = self.log.append_marker(
            ControlMarker(commit, 1),
            producer_id=TRANSACTIONAL_PRODUCER,
            producer_epoch=0,
            leader_epoch=0,
            now_ms=self.now_ms,
        )
        assert self.transaction is not None
        if not commit:
            self.aborted.append((TRANSACTIONAL_PRODUCER, self.transaction, appended.base_offset))
        self.transaction = None
        self.wrote([None])

    # --- forgetting ---

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start_offset = self.log.delete_records(data.draw(st.integers(self.start_offset, len(self.values))))
        self.flush()

    @rule(kept_bytes=st.integers(0, 4000))
    def retention(self, kept_bytes: int) -> None:
        self.log.update_config(replace(CONFIG, retention_bytes=kept_bytes))
        self.log.apply_retention(self.now_ms)
        self.log.update_config(CONFIG)
        assert self.log.log_start_offset >= self.start_offset
        self.start_offset = self.log.log_start_offset
        self.flush()
        for removal in self.log.take_removals(self.now_ms):
            removal.run()

    # --- accidents ---

    @rule()
    def flush(self) -> None:
        request = self.log.flush_request()
        if request is not None:
            request.run()
            self.log.flushed(request, self.now_ms)
        self.flushed_offset = self.log.recovery_point
        assert self.flushed_offset == len(self.values)

    @rule()
    def close_and_open(self) -> None:
        self.log.close(clean=True, now_ms=self.now_ms)
        self.flushed_offset = self.log.recovery_point
        had_flipped = bool(self.flipped)
        self.log = self.open(clean=True)
        assert self.log.recovery.scanned_bytes == 0
        if had_flipped:
            self.forget_unrecoverable()

    @rule()
    def kill(self) -> None:
        had_flipped = bool(self.flipped)
        self.storage = self.storage.after_kill()
        self.log = self.open(clean=False)
        assert self.log.log_end_offset == len(self.values)
        if had_flipped:
            self.forget_unrecoverable()

    @rule(garbage=st.binary(min_size=1, max_size=200))
    def kill_with_a_torn_tail(self, garbage: bytes) -> None:
        self.storage.content(self.log.active_segment.path).extend(garbage)
        self.kill()

    @rule(seed=st.integers(0, 10**6))
    def lose_power(self, seed: int) -> None:
        self.storage = self.storage.after_power_loss(seed)
        self.log = self.open(clean=False)
        end = self.log.log_end_offset
        assert self.flushed_offset <= end <= max(len(self.values), self.start_offset)
        self.forget_from(end)
        self.forget_unrecoverable()

    @rule(operation=st.integers(0, 30), torn=st.booleans(), producer_id=PRODUCERS)
    def fail_while_appending(self, operation: int, torn: bool, producer_id: int) -> None:
        self.storage.fail_at(self.storage.operations + operation, torn=torn)
        try:
            self.append(producer_id, 2, 100)
        except KafkaStorageError:
            self.storage.heal()
            if self.log.offline:
                self.log = self.open(clean=False)
        self.storage.heal()
        assert self.log.log_end_offset == len(self.values)

    def forget_from(self, end: int) -> None:
        """The model after the log lost its tail."""
        del self.values[end:]
        self.values += [None] * (end - len(self.values))
        for known in self.producers.values():
            while known.batches and known.batches[-1][2] >= end:
                known.next_sequence = known.batches.pop()[0]
        self.aborted = [each for each in self.aborted if each[2] < end]

    def forget_unrecoverable(self) -> None:
        """Without a snapshot, nobody remembers the producers of segments that retention has removed."""
        segments = [*self.log.segments, self.log.active_segment]
        first_offset = segments[0].base_offset
        kept = {
            key: known
            for key, known in self.producers.items()
            if known.batches and all(batch[2] >= first_offset for batch in known.batches[-KEPT_BATCHES:])
        }
        self.retired += len(kept) < len(self.producers)
        self.producers = kept
        self.half_known.update(each[2] for each in self.aborted if each[1] < first_offset)
        entry = self.log.producers.entry(TRANSACTIONAL_PRODUCER)
        self.transaction = entry.current_transaction_first_offset if entry else None
        self.transactional_sequence = entry.next_sequence if entry and entry.batches else 0

    @rule(data=st.data(), suffix=st.sampled_from([".index", ".timeindex", ".snapshot"]), flip=st.booleans())
    def lose_or_damage_a_file_and_kill(self, data: st.DataObject, suffix: str, flip: bool) -> None:
        paths = self.storage.paths(suffix)
        if not paths:
            return
        path = data.draw(st.sampled_from(paths))
        content = self.storage.content(path)
        whole, was_flipped = bytes(content), path in self.flipped
        if not flip or not content:
            self.storage.remove(path)
        elif suffix != ".timeindex":  # a flipped timestamp in its middle goes unnoticed until it is asked for
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            if suffix == ".snapshot":
                self.flipped.add(path)
        try:
            self.kill()
        except DamagedLog as refused:  # producers are known from that snapshot alone: nobody is served until it is back
            if suffix != ".snapshot" or was_flipped or "the memory of its producers is lost" not in str(refused):
                raise
            self.storage.write_atomically(path, whole)
            self.flipped.discard(path)
            self.kill()
            return
        if suffix == ".snapshot":
            self.forget_unrecoverable()

    # --- what must always hold ---

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        assert self.log.log_start_offset == self.start_offset
        assert self.log.log_end_offset == max(len(self.values), self.start_offset)
        records = read_records(self.log, max_bytes=400)
        assert [record.offset for record in records] == list(range(self.start_offset, len(self.values)))
        for record in records:
            expected = self.values[record.offset]
            assert expected is None or record.value == expected

    @invariant()
    def transactions_are_known(self) -> None:
        found = self.log.aborted_transactions(self.start_offset, len(self.values))
        expected = [each for each in self.aborted if each[2] >= self.start_offset and each[2] not in self.half_known]
        assert [each[:3] for each in found if each.last_offset not in self.half_known] == expected
        if self.transaction is not None and self.transaction >= self.start_offset:
            assert self.log.last_stable_offset == self.transaction


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
