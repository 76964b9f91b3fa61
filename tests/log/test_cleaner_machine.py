"""Compaction against a model that keeps every record ever written, with a crash at any file operation.

The machine writes keyed records (plain, idempotent, transactional), ends transactions, rolls segments, lets time pass
and cleans: whole rounds, rounds with little room for keys, and rounds that a killed process or a lost disk cache ends
at any operation. After every step a reader must find what the promises of compaction allow, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import Record
from tests.log.compacting import (
    DELETE_RETENTION_MS,
    START_MS,
    append,
    clean,
    end_transaction,
    open_log,
    read_committed,
    read_records,
)
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash
from tests.support.sizes import examples

KEYS = (b"a", b"b", b"c", b"d", b"e" * 40)
TRANSACTIONAL_PRODUCERS = (10, 11)
IDEMPOTENT_PRODUCERS = (20, 21)
LAST_OPERATION = 90


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    producer_id: int


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage = FaultyStorage()
        self.log: PartitionLog = open_log(self.storage)
        self.now_ms = START_MS
        self.written: list[Written] = []
        self.undecided: dict[int, list[Written]] = {}  # by producer id
        self.aborted: set[int] = set()  # offsets
        self.sequences: dict[int, int] = {}
        self.cleaned_below: int | None = None
        self.first_cleaned_ms: dict[int, int] = {}  # by offset of a tombstone
        self.values = 0

    # --- writing ---

    def write(self, producer_id: int, keys: list[bytes], tombstones: bool, *, transactional: bool) -> None:
        self.values += 1
        value = None if tombstones else b"value %d" % self.values
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        base_offset = append(
            self.log,
            *[(key, value) for key in keys],
            now_ms=self.now_ms,
            producer_id=producer_id,
            sequence=sequence,
            transactional=transactional,
        )
        self.sequences[producer_id] = sequence + len(keys)
        records = [Written(base_offset + i, key, value, producer_id) for i, key in enumerate(keys)]
        self.written += records
        if transactional:
            self.undecided.setdefault(producer_id, []).extend(records)

    @rule(
        producer_id=st.sampled_from([-1, *IDEMPOTENT_PRODUCERS]),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        tombstones=st.sampled_from([False, False, True]),
    )
    def write_plain(self, producer_id: int, keys: list[bytes], tombstones: bool) -> None:
        self.write(producer_id, keys, tombstones, transactional=False)

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
        tombstones=st.sampled_from([False, False, True]),
    )
    def write_in_transaction(self, producer_id: int, keys: list[bytes], tombstones: bool) -> None:
        self.write(producer_id, keys, tombstones, transactional=True)

    @precondition(lambda self: self.undecided)
    @rule(data=st.data(), commit=st.booleans())
    def end_a_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.undecided)))
        end_transaction(self.log, producer_id, commit=commit, now_ms=self.now_ms)
        records = self.undecided.pop(producer_id)
        if not commit:
            self.aborted.update(record.offset for record in records)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(elapsed_ms=st.sampled_from([1, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS]))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    # --- cleaning ---

    @rule(max_keys=st.sampled_from([2, 100]), from_start=st.booleans())
    def clean(self, max_keys: int, from_start: bool) -> None:
        self.note_tombstones()
        cleaned_below = None if from_start else self.cleaned_below
        self.cleaned_below = clean(
            self.log, self.storage, now_ms=self.now_ms, cleaned_below=cleaned_below, max_keys=max_keys
        )
        if max_keys > len(KEYS):
            self.the_clean_section_holds_each_key_once()

    @rule(operation=st.integers(0, LAST_OPERATION), power_loss_seed=st.none() | st.integers(0, 1_000))
    def clean_and_crash(self, operation: int, power_loss_seed: int | None) -> None:
        self.flush()
        self.note_tombstones()
        self.storage.crash_at(self.storage.operations + operation)
        try:
            clean(self.log, self.storage, now_ms=self.now_ms, cleaned_below=self.cleaned_below)
        except SimulatedCrash:
            self.restart(power_loss_seed)
        finally:
            self.storage.heal()

    def note_tombstones(self) -> None:
        """From now on a round may set the horizon of any tombstone."""
        for record in self.written:
            if record.value is None:
                self.first_cleaned_ms.setdefault(record.offset, self.now_ms)

    def flush(self) -> None:
        request = self.log.flush_request()
        if request is not None:
            request.run()
            self.log.flushed(request, self.now_ms)

    def restart(self, power_loss_seed: int | None) -> None:
        storage = self.storage
        self.storage = storage.after_kill() if power_loss_seed is None else storage.after_power_loss(power_loss_seed)
        recovery_point = self.log.recovery_point
        self.log = open_log(self.storage, now_ms=self.now_ms, recovery_point=recovery_point)

    @rule(lose_snapshots=st.booleans())
    def restart_after_kill(self, lose_snapshots: bool) -> None:
        expected = self.producers()
        if lose_snapshots:
            for path in self.storage.paths(".snapshot"):
                self.storage.remove(path)
        self.restart(None)
        assert self.producers() == expected

    def producers(self) -> dict[int, tuple[int, int, int | None]]:
        """What must never be forgotten of a producer: its last batch, and the transaction it has open."""
        return {
            entry.producer_id: (
                entry.batches[-1].last_sequence,
                entry.batches[-1].last_offset,
                entry.current_transaction_first_offset,
            )
            for entry in self.log.producers.entries()
        }

    # --- what must hold ---

    def decided(self) -> list[Written]:
        """The records that `read_committed` would find if nothing were ever compacted."""
        stable = min((records[0].offset for records in self.undecided.values()), default=self.log.log_end_offset)
        return [record for record in self.written if record.offset < stable and record.offset not in self.aborted]

    def the_clean_section_holds_each_key_once(self) -> None:
        assert self.cleaned_below is not None
        clean_section = [record for record in read_records(self.log) if record.offset < self.cleaned_below]
        assert len({record.key for record in clean_section}) == len(clean_section)
        assert not self.aborted.intersection(record.offset for record in clean_section)

    @invariant()
    def readers_find_a_part_of_what_was_committed_in_its_order_and_place(self) -> None:
        committed = {record.offset: record for record in self.decided()}
        found = read_committed(self.log)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            original = committed[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
            assert record.headers == (("header", b"kept"),)

    @invariant()
    def the_newest_value_of_every_key_is_found(self) -> None:
        found: dict[bytes | None, list[Record]] = {}
        for record in read_committed(self.log):
            found.setdefault(record.key, []).append(record)
        for key, newest in {record.key: record for record in self.decided()}.items():
            if newest.value is not None:
                assert found[key][-1].offset == newest.offset
            elif found.get(key):
                assert found[key][-1].offset == newest.offset, "a deleted value came back"

    @invariant()
    def tombstones_are_seen_for_as_long_as_promised(self) -> None:
        found = {record.offset for record in read_committed(self.log)}
        for newest in {record.key: record for record in self.decided()}.values():
            cleaned_ms = self.first_cleaned_ms.get(newest.offset)
            if newest.value is None and (cleaned_ms is None or self.now_ms < cleaned_ms + DELETE_RETENTION_MS):
                assert newest.offset in found

    @invariant()
    def what_is_not_yet_cleanable_is_all_there(self) -> None:
        active_base = self.log.active_segment.base_offset
        found = {record.offset for record in read_records(self.log)}
        assert {record.offset for record in self.written if record.offset >= active_base} <= found

    @invariant()
    def no_leftovers(self) -> None:
        assert self.storage.paths(".cleaned") == []
        assert self.storage.paths(".swap") == []


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
