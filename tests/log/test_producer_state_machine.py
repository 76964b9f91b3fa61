"""Producer state against a model that keeps the whole history and answers every question by reading all of it.

The machine appends, repeats, skips, wraps, bumps epochs, ends transactions, advances the high watermark and the clock,
takes snapshots, truncates and restarts; after every step state and model must agree on every producer. What the records
say of time is any time, and each life of the broker begins at any time.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.errors import KafkaError
from oncelog.log import producer_snapshot
from oncelog.log.producer_state import APPEND, KEPT_BATCHES, AppendOrigin, Duplicate, ProducerStateManager
from oncelog.records.batch import BatchHeader, ControlMarker
from oncelog.types import TopicPartition, advance_sequence
from tests.support.sizes import examples

EXPIRATION_MS = 100
SEQUENCE_SPAN = 2**31
PRODUCERS = (1, 2, 3)
TRANSACTIONAL, CONTROL = 0x10, 0x20

APPENDED = "appended"
OUT_OF_ORDER, FENCED, BAD_STATE, COORDINATOR_FENCED = 45, 47, 48, 52


class Event(NamedTuple):
    """A batch or a marker in the model's log."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    timestamp: int
    transactional: bool
    marker: ControlMarker | None = None

    @property
    def header(self) -> BatchHeader:
        return BatchHeader(
            base_offset=self.offset,
            size_bytes=100,
            leader_epoch=0,
            magic=2,
            crc=0,
            attributes=TRANSACTIONAL * (self.transactional or self.marker is not None) | CONTROL * bool(self.marker),
            last_offset_delta=self.count - 1,
            base_timestamp=self.timestamp,
            max_timestamp=self.timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            record_count=self.count,
        )


class View(NamedTuple):
    """What the model knows of one producer after reading its history."""

    epoch: int
    batches: tuple[Event, ...]
    open_since: int | None
    coordinator_epoch: int
    timestamp: int


def read_history(events: list[Event]) -> View | None:
    if not events:
        return None
    last = events[-1]
    epoch_changes = [i for i in range(1, len(events)) if events[i].epoch != events[i - 1].epoch]
    of_epoch = events[epoch_changes[-1] :] if epoch_changes else events
    markers = [i for i, event in enumerate(events) if event.marker is not None]
    since_marker = events[markers[-1] + 1 :] if markers else events
    in_transaction = [event.offset for event in since_marker if event.transactional]
    last_marker = events[markers[-1]].marker if markers else None
    return View(
        last.epoch,
        tuple(event for event in of_epoch if event.marker is None)[-KEPT_BATCHES:],
        in_transaction[0] if in_transaction else None,
        last_marker.coordinator_epoch if last_marker else -1,
        last.timestamp,
    )


class Held(NamedTuple):
    """A snapshot, and what the model knew when it was taken."""

    data: bytes
    forgotten: dict[int, int]
    silent_ms: dict[int, int]


NOTHING_HELD = Held(producer_snapshot.encode([], 0), {}, {})


class Model:
    """The log as a list. `forgotten` holds, per producer, the offset below which expiry has made us blind."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.forgotten: dict[int, int] = {}
        self.released_below = 0
        self.appended_ms: dict[int, int] = {}
        """By the broker's clock: when each producer last wrote."""
        self.snapshots: dict[int, Held] = {}

    @property
    def end_offset(self) -> int:
        return self.log[-1].offset + self.log[-1].count if self.log else 0

    def view(self, producer_id: int) -> View | None:
        blind_below = self.forgotten.get(producer_id, 0)
        return read_history([e for e in self.log if e.producer_id == producer_id and e.offset >= blind_below])

    def append(self, event: Event, now_ms: int) -> None:
        self.log.append(event)
        self.appended_ms[event.producer_id] = now_ms

    def is_expired(self, producer_id: int, now_ms: int) -> bool:
        view = self.view(producer_id)
        if view is None or view.open_since is not None:
            return False
        return now_ms - self.appended_ms[producer_id] >= EXPIRATION_MS

    def verdict(self, event: Event, transaction_version: int) -> str | int | Event:
        """What an append must be answered: APPENDED, an error code, or the batch it repeats."""
        view = self.view(event.producer_id)
        if view is None:
            gap = event.transactional and transaction_version == 2 and event.sequence != 0
            return OUT_OF_ORDER if gap else APPENDED
        expected = 0
        if event.epoch == view.epoch and view.batches:
            expected = (view.batches[-1].sequence + view.batches[-1].count) % SEQUENCE_SPAN
        if event.epoch < view.epoch or event.sequence != expected:
            for kept in view.batches:
                if (kept.epoch, kept.sequence, kept.count) == (event.epoch, event.sequence, event.count):
                    return kept
            return FENCED if event.epoch < view.epoch else OUT_OF_ORDER
        return BAD_STATE if view.open_since is not None and not event.transactional else APPENDED

    def marker_verdict(self, event: Event, transaction_version: int) -> str | int:
        assert event.marker is not None
        view = self.view(event.producer_id)
        if view is None:
            return APPENDED
        if event.epoch < view.epoch:
            return FENCED
        if transaction_version == 2 and event.epoch == view.epoch and view.open_since is not None:
            return FENCED
        return COORDINATOR_FENCED if event.marker.coordinator_epoch < view.coordinator_epoch else APPENDED

    def open_transactions(self) -> list[int]:
        views = [self.view(producer_id) for producer_id in PRODUCERS]
        return [view.open_since for view in views if view is not None and view.open_since is not None]

    def unreplicated_transactions(self) -> list[int]:
        first_offsets = []
        for i, event in enumerate(self.log):
            if event.marker is None or event.offset < self.released_below:
                continue
            # Expiry never strikes inside a transaction, so the whole history tells how it began.
            before = read_history([e for e in self.log[:i] if e.producer_id == event.producer_id])
            if before is not None and before.open_since is not None:
                first_offsets.append(before.open_since)
        return first_offsets


class ProducerStateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.wrong_by_ms = 0
        self.model = Model()
        self.state = self.new_state()

    @staticmethod
    def new_state() -> ProducerStateManager:
        return ProducerStateManager(TopicPartition("t", 0), producer_id_expiration_ms=EXPIRATION_MS)

    def append(self, event: Event, transaction_version: int) -> None:
        expected = self.model.verdict(event, transaction_version)
        if isinstance(expected, int):
            with pytest.raises(KafkaError) as caught:
                self.state.check(event.header, AppendOrigin.CLIENT, transaction_version=transaction_version)
            assert caught.value.code == expected
            return
        decision = self.state.check(event.header, AppendOrigin.CLIENT, transaction_version=transaction_version)
        if isinstance(decision, Duplicate):
            assert isinstance(expected, Event)
            metadata = decision.metadata
            assert metadata.first_offset == expected.offset
            assert metadata.last_offset == expected.offset + expected.count - 1
            assert metadata.timestamp == expected.timestamp
            return
        assert decision is APPEND
        assert expected == APPENDED
        self.state.update(event.header, event.offset, event.timestamp, self.now_ms)
        self.model.append(event, self.now_ms)

    def event(self, producer_id: int, epoch: int, sequence: int, count: int, transactional: bool) -> Event:
        timestamp = self.now_ms + self.wrong_by_ms
        return Event(self.model.end_offset, producer_id, epoch, sequence, count, timestamp, transactional)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        count=st.sampled_from([1, 2, 5, SEQUENCE_SPAN // 2 - 1]),
        transactional=st.sampled_from([True, True, False]),
        transaction_version=st.sampled_from([1, 2]),
    )
    def append_next(self, producer_id: int, count: int, transactional: bool, transaction_version: int) -> None:
        view = self.model.view(producer_id)
        epoch, sequence = 0, 0
        if view is not None:
            epoch = view.epoch
            if view.batches:
                sequence = advance_sequence(view.batches[-1].sequence, view.batches[-1].count)
            transactional = transactional or view.open_since is not None
        self.append(self.event(producer_id, epoch, sequence, count, transactional), transaction_version)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        epoch_change=st.sampled_from([-1, 0, 0, 1]),
        sequences=st.tuples(
            st.sampled_from([0, 1, 2, 5, SEQUENCE_SPAN - 2, SEQUENCE_SPAN - 1]), st.sampled_from([1, 5])
        ),
        transactional=st.booleans(),
        transaction_version=st.sampled_from([1, 2]),
    )
    def append_anything(
        self,
        producer_id: int,
        epoch_change: int,
        sequences: tuple[int, int],
        transactional: bool,
        transaction_version: int,
    ) -> None:
        sequence, count = sequences
        view = self.model.view(producer_id)
        epoch = max(0, (view.epoch if view else 0) + epoch_change)
        self.append(self.event(producer_id, epoch, sequence, count, transactional), transaction_version)

    @precondition(lambda self: any(event.marker is None for event in self.model.log))
    @rule(data=st.data(), count_change=st.sampled_from([0, 0, 0, 1]))
    def repeat_an_old_batch(self, data: st.DataObject, count_change: int) -> None:
        old = data.draw(st.sampled_from([event for event in self.model.log if event.marker is None][-12:]))
        repeat = old._replace(offset=self.model.end_offset, count=old.count + count_change, timestamp=self.now_ms)
        self.append(repeat, 1)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        epoch_change=st.sampled_from([0, 0, 1, -1]),
        commit=st.booleans(),
        coordinator_epoch=st.sampled_from([0, 1]),
        transaction_version=st.sampled_from([1, 2]),
    )
    def end_transaction(
        self, producer_id: int, epoch_change: int, commit: bool, coordinator_epoch: int, transaction_version: int
    ) -> None:
        view = self.model.view(producer_id)
        epoch = max(0, (view.epoch if view else 0) + epoch_change)
        self.mark(producer_id, epoch, ControlMarker(commit, coordinator_epoch), transaction_version)

    @precondition(lambda self: self.model.open_transactions())
    @rule(data=st.data(), commit=st.booleans(), transaction_version=st.sampled_from([1, 2]))
    def end_an_open_transaction(self, data: st.DataObject, commit: bool, transaction_version: int) -> None:
        views = {producer_id: self.model.view(producer_id) for producer_id in PRODUCERS}
        opened = [producer_id for producer_id, view in views.items() if view and view.open_since is not None]
        producer_id = data.draw(st.sampled_from(opened))
        view = views[producer_id]
        assert view is not None
        epoch = view.epoch + (1 if transaction_version == 2 else 0)
        self.mark(producer_id, epoch, ControlMarker(commit, max(view.coordinator_epoch, 0)), transaction_version)

    def mark(self, producer_id: int, epoch: int, marker: ControlMarker, transaction_version: int) -> None:
        view = self.model.view(producer_id)
        event = self.event(producer_id, epoch, -1, 1, transactional=False)._replace(marker=marker)
        expected = self.model.marker_verdict(event, transaction_version)
        if isinstance(expected, int):
            with pytest.raises(KafkaError) as caught:
                self.check_marker(event, marker, transaction_version)
            assert caught.value.code == expected
            return
        self.check_marker(event, marker, transaction_version)
        completed = self.state.complete_transaction(event.header, marker, event.offset, event.timestamp, self.now_ms)
        self.model.append(event, self.now_ms)
        if view is None or view.open_since is None:
            assert completed is None
            return
        assert completed is not None
        assert completed.first_offset == view.open_since
        assert completed.last_offset == event.offset
        assert completed.is_aborted is not marker.commit
        assert completed.last_stable_offset == min(self.model.open_transactions(), default=event.offset + 1)

    def check_marker(self, event: Event, marker: ControlMarker, transaction_version: int) -> None:
        origin = AppendOrigin.COORDINATOR
        self.state.check_marker(event.header, marker, origin, transaction_version=transaction_version)

    @precondition(lambda self: self.model.log)
    @rule(data=st.data(), beyond=st.booleans())
    def advance_high_watermark(self, data: st.DataObject, beyond: bool) -> None:
        event = data.draw(st.sampled_from(self.model.log[-6:]))
        offset = event.offset + event.count if beyond else event.offset
        self.model.released_below = max(self.model.released_below, offset)
        self.state.on_high_watermark(offset)

    @rule(elapsed_ms=st.sampled_from([1, EXPIRATION_MS - 1, EXPIRATION_MS]))
    def expire(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        expected = {producer_id for producer_id in PRODUCERS if self.model.is_expired(producer_id, self.now_ms)}
        assert set(self.state.expire(self.now_ms)) == expected
        for producer_id in expected:
            self.model.forgotten[producer_id] = self.model.end_offset

    @rule()
    def take_snapshot(self) -> None:
        data = producer_snapshot.encode(self.state.entries(), self.now_ms)
        silent_ms = {producer_id: self.now_ms - at_ms for producer_id, at_ms in self.model.appended_ms.items()}
        self.model.snapshots[self.model.end_offset] = Held(data, dict(self.model.forgotten), silent_ms)

    @rule(wrong_by_ms=st.sampled_from([-1000 * EXPIRATION_MS, 0, 1000 * EXPIRATION_MS]))
    def write_records_of_another_time(self, wrong_by_ms: int) -> None:
        self.wrong_by_ms = wrong_by_ms

    @rule(begins_ms=st.sampled_from([5, 1_000, 1_000 + 1000 * EXPIRATION_MS]))
    def restart(self, begins_ms: int) -> None:
        self.now_ms = begins_ms
        self.state = self.new_state()
        self.reload()

    @precondition(lambda self: self.model.log)
    @rule(kept=st.floats(0, 1))
    def truncate(self, kept: float) -> None:
        count = int(len(self.model.log) * kept)
        del self.model.log[count:]
        end_offset = self.model.end_offset
        self.model.snapshots = {at: held for at, held in self.model.snapshots.items() if at <= end_offset}
        self.reload()

    def reload(self) -> None:
        """Newest snapshot plus replay of what follows, and the same blindness in the model."""
        start = max(self.model.snapshots, default=0)
        held = self.model.snapshots.get(start, NOTHING_HELD)
        self.state.load(producer_snapshot.decode(held.data, self.now_ms))
        self.model.forgotten = dict(held.forgotten)
        self.model.released_below = start
        self.model.appended_ms = {pid: self.now_ms - silent_ms for pid, silent_ms in held.silent_ms.items()}
        for event in self.model.log:
            if event.offset >= start:
                self.state.replay(event.header, event.marker, self.now_ms)
                self.model.appended_ms[event.producer_id] = self.now_ms

    @invariant()
    def every_producer_is_known_as_the_history_says(self) -> None:
        for producer_id in PRODUCERS:
            view = self.model.view(producer_id)
            entry = self.state.entry(producer_id)
            if view is None:
                assert entry is None
                continue
            assert entry is not None
            assert (entry.epoch, entry.last_timestamp) == (view.epoch, view.timestamp)
            assert entry.last_appended_ms == self.model.appended_ms[producer_id]
            assert entry.coordinator_epoch == view.coordinator_epoch
            assert entry.current_transaction_first_offset == view.open_since
            assert [batch.first_offset for batch in entry.batches] == [batch.offset for batch in view.batches]

    @invariant()
    def the_first_unstable_offset_is_the_lowest_undecided_or_unreplicated(self) -> None:
        open_transactions = self.model.open_transactions()
        assert self.state.first_undecided_offset == min(open_transactions, default=None)
        unstable = [*open_transactions, *self.model.unreplicated_transactions()]
        assert self.state.first_unstable_offset == min(unstable, default=None)


TestProducerStateMachine = ProducerStateMachine.TestCase
TestProducerStateMachine.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
