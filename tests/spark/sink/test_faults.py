"""The faults that must pass, one by one, at every call; and that they would tell, if the sink had a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink import deciding, procedure
from oncelog.spark.sink.attempts import Prepared, TaskResult
from oncelog.spark.sink.errors import PrefixInUse, RolledBack, UnreadableJournal
from oncelog.spark.sink.finishing import Answer, Copy, Fate
from oncelog.spark.sink.journal import Decided, Done, Entry, encode
from oncelog.spark.sink.ports import Journal
from oncelog.spark.sink.procedure import Sink
from tests.spark.sink import model_spark
from tests.spark.sink.model_ports import JOURNAL, Blow, ModelJournal
from tests.spark.sink.test_machine import SparkOnKafka

ALL_CALLS = range(1, 20)
"""More than any of the plans and commits below makes."""

THE_DECISION, BEFORE_THE_FIRST_END = 4, 5
"""Which call of a commit that is: before it, a look at the term, the takeover, and the record."""


def _crashes() -> Iterator[tuple[int, Blow]]:
    return ((fuse, blow) for fuse in ALL_CALLS for blow in Blow)


def _written(protocol: int, slots: int = 2, *, short: bool = False) -> SparkOnKafka:
    """A batch of four rows whose tasks are all done."""
    state = SparkOnKafka()
    state.start(protocol=protocol, retention_is_short=short)
    state.plan(rows=4, slots=slots, shift=0, fuse=None, blow=Blow.BEFORE)
    state.run_the_other_tasks()
    return state


def _commit(
    state: SparkOnKafka, fuse: int | None = None, blow: Blow = Blow.BEFORE, *, abort: bool = False, file: bool = True
) -> None:
    state.commit(fuse=fuse, blow=blow, then_abort=abort, commit_file=file)


def _plan(state: SparkOnKafka, fuse: int | None = None, blow: Blow = Blow.BEFORE, slots: int = 2) -> None:
    state.plan(rows=2, slots=slots, shift=1, fuse=fuse, blow=blow)


def the_driver_dies_in_a_commit(protocol: int) -> Iterator[SparkOnKafka]:
    for fuse, blow in _crashes():
        for abort in (False, True):
            state = _written(protocol)
            _commit(state, fuse, blow, abort=abort)
            yield state


def the_commit_file_is_not_written(protocol: int) -> Iterator[SparkOnKafka]:
    state = _written(protocol)
    _commit(state, file=False)
    _plan(state, slots=3)
    yield state


def an_outage_before_the_decision(protocol: int) -> Iterator[SparkOnKafka]:
    for fuse, blow in _crashes():
        state = _written(protocol)
        state.an_outage_longer_than_the_timeout()
        _commit(state, fuse, blow)
        yield state


def an_outage_after_the_decision(protocol: int) -> Iterator[SparkOnKafka]:
    for fuse, blow in _crashes():
        state = _written(protocol)
        _commit(state, BEFORE_THE_FIRST_END)
        state.an_outage_longer_than_the_timeout()
        _plan(state, fuse, blow)
        state.kill()
        yield state


def the_outcome_is_forgotten(protocol: int) -> Iterator[SparkOnKafka]:
    for blow in Blow:
        for fuse in (BEFORE_THE_FIRST_END, BEFORE_THE_FIRST_END + 1):
            state = _written(protocol)
            _commit(state, fuse, blow)
            state.transactional_ids_expire()
            yield state


def a_losing_attempt_wakes(protocol: int) -> Iterator[SparkOnKafka]:
    """After the winner prepared; and after the driver died in the commit."""
    for fuse in (None, *ALL_CALLS):
        for steps in range(1, 6):
            state = _written(protocol)
            state.try_a_task(chance=0)
            if fuse is not None:
                _commit(state, fuse, Blow.AFTER)
            state.go_on(chance=0, steps=steps)
            if fuse is None:
                _commit(state)
            yield state


def a_committer_outlives_its_driver(protocol: int) -> Iterator[SparkOnKafka]:
    for fuse in (None, *ALL_CALLS):
        state = _written(protocol)
        state.kill()
        _plan(state)
        state.run_the_other_tasks()
        state.a_worker_outlives_its_driver(chance=0, fuse=fuse, blow=Blow.AFTER)
        yield state
    state = _written(protocol)
    _commit(state, file=False)
    state.a_worker_outlives_its_driver(chance=0, fuse=None, blow=Blow.AFTER)
    yield state


def a_decision_arrives_late(protocol: int) -> Iterator[SparkOnKafka]:
    state = _written(protocol)
    _commit(state, THE_DECISION, Blow.LATE)
    _plan(state)
    state.run_the_other_tasks()
    state.a_request_arrives_late()
    yield state
    state = _written(protocol)
    _commit(state, THE_DECISION, Blow.LATE)
    _plan(state)
    state.run_the_other_tasks()
    _commit(state)
    state.a_request_arrives_late()
    yield state


def fewer_slots_after_a_crash(protocol: int) -> Iterator[SparkOnKafka]:
    state = _written(protocol, slots=3)
    state.kill()
    _plan(state, slots=1)
    yield state


def the_checkpoint_is_deleted(protocol: int) -> Iterator[SparkOnKafka]:
    for fuse in (None, BEFORE_THE_FIRST_END):
        state = _written(protocol)
        _commit(state, fuse)
        state.the_checkpoint_is_deleted()
        _plan(state)
        yield state


def the_checkpoint_is_rolled_back(protocol: int) -> Iterator[SparkOnKafka]:
    for batches in (1, 2):
        state = _written(protocol)
        _commit(state)
        _plan(state)
        state.run_the_other_tasks()
        _commit(state)
        state.the_checkpoint_is_rolled_back(batches=batches, more=2)
        yield state


def retention_removes_what_was_aborted(protocol: int) -> Iterator[SparkOnKafka]:
    state = _written(protocol, short=True)
    _commit(state, BEFORE_THE_FIRST_END)
    state.an_outage_longer_than_the_timeout()
    state.retention_removes_the_output()
    yield state


FAULTS = [
    the_driver_dies_in_a_commit,
    the_commit_file_is_not_written,
    an_outage_before_the_decision,
    an_outage_after_the_decision,
    the_outcome_is_forgotten,
    a_losing_attempt_wakes,
    a_committer_outlives_its_driver,
    a_decision_arrives_late,
    fewer_slots_after_a_crash,
    the_checkpoint_is_deleted,
    the_checkpoint_is_rolled_back,
    retention_removes_what_was_aborted,
]


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.__name__)
def test_ends_exactly_once_or_loudly(fault: Callable[[int], Iterator[SparkOnKafka]], protocol: int) -> None:
    for state in fault(protocol):
        state.teardown()


def test_of_two_queries_with_one_prefix_one_stops() -> None:
    state = _written(2)
    one = state.driver
    assert one is not None
    state.the_checkpoint_is_deleted()
    _plan(state)
    one.alive = True
    one.commit()
    assert isinstance(one.error, PrefixInUse)
    state.run_the_other_tasks()
    _commit(state)
    assert state.checkpoint.committed == 1
    state.teardown()


# --- planted bugs ---------------------------------------------------------------------------------------------------


def _by_batch_alone(last_done: dict[str, Done], query_id: str, batch_id: int) -> deciding.Choice:
    done = max((one.batch_id for one in last_done.values()), default=-1)
    return deciding.Choice.SKIP if batch_id <= done else deciding.Choice.WRITE


def _skip_what_was_rolled_back(done: Done, batch_id: int, digest: str | None) -> None:
    pass


def _ignore_digests(done: Done, batch_id: int, digest: str | None) -> None:
    if batch_id < done.batch_id:
        raise RolledBack("too far back")


def _trust_every_answer(decided: Decided, attempt: Prepared, answer: Answer) -> Fate:
    return Fate.COMMITTED


def _take_unclear_for_committed(decided: Decided, attempt: Prepared, answer: Answer) -> Fate:
    return Fate.ABORTED if answer is Answer.ABORTED else Fate.COMMITTED


def _take_unclear_for_aborted(decided: Decided, attempt: Prepared, answer: Answer) -> Fate:
    return Fate.COMMITTED if answer is Answer.COMMITTED else Fate.ABORTED


def _copy_without_counting(decided: Decided, copies: list[tuple[Copy, Prepared]]) -> Decided:
    replacing = {plan.source.transaction: copy for plan, copy in copies}
    return replace(decided, attempts=tuple(replacing.get(one.transaction, one) for one in decided.attempts))


def _finish_without_journaling_copies(self: Sink, decided: Decided) -> Done:
    quiet = replace(self, journal=_OnlyDone(self.journal))  # type: ignore[arg-type]
    return ORIGINAL_FINISH(quiet, decided)


def _commit_before_the_decision(
    self: Sink, batch_id: int, results: list[TaskResult], digest: str | None, now_ms: int
) -> None:
    self.transactions.commit([one.outcome for one in results if isinstance(one.outcome, Prepared)])
    ORIGINAL_COMMIT(self, batch_id, results, digest, now_ms)


def _done_before_it_is(self: Sink, decided: Decided) -> Done:
    done = Done(decided.query_id, decided.batch_id, decided.digest)
    self.journal.append(done)
    self.transactions.commit(decided.attempts)
    return done


def _commit_without_a_look_at_the_journal(
    self: Sink, batch_id: int, results: list[TaskResult], digest: str | None, now_ms: int
) -> None:
    self.journal.take_over()
    prepared = tuple(one.outcome for one in results if isinstance(one.outcome, Prepared))
    if prepared:
        self.journal.append(Decided(results[0].query_id, batch_id, digest, prepared))
        self._finish(Decided(results[0].query_id, batch_id, digest, prepared))


def _fence_nothing(prefix: str, found_open: object, decided: object) -> tuple[()]:
    return ()


def _append_unfenced(self: ModelJournal, entry: Entry) -> None:
    """With an id of its own each time, in as many calls."""
    kafka = self._world.kafka
    name = f"anybody-{len(kafka.ids)}"

    def append() -> None:
        me = PreparedTransaction(name, *kafka.init(name))
        kafka.produce(*me, JOURNAL, encode(entry))
        kafka.end_txn(*me, commit=True)

    self._world.call(lambda: None)
    self._world.call(append)


def _fence_the_decided_and_call_it_done(self: Sink, decided: Decided) -> Done:
    self.transactions.fence([one.transaction for one in decided.attempts])
    return _done_before_it_is(self, decided)


class _OnlyDone:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def append(self, entry: Entry) -> None:
        if isinstance(entry, Done):
            self._journal.append(entry)


ORIGINAL_FINISH, ORIGINAL_COMMIT = Sink._finish, Sink.commit

PLANTED: list[tuple[object, str, Callable[..., object]]] = [
    (model_spark, "choose", _by_batch_alone),
    (deciding, "_check_replay", _skip_what_was_rolled_back),
    (deciding, "_check_replay", _ignore_digests),
    (procedure, "after_commit", _trust_every_answer),
    (procedure, "after_commit", _take_unclear_for_committed),
    (procedure, "after_commit", _take_unclear_for_aborted),
    (procedure, "after_salvage", _copy_without_counting),
    (procedure, "to_fence", _fence_nothing),
    (Sink, "_finish", _finish_without_journaling_copies),
    (Sink, "_finish", _done_before_it_is),
    (Sink, "_finish", _fence_the_decided_and_call_it_done),
    (ModelJournal, "append", _append_unfenced),
    (Sink, "commit", _commit_before_the_decision),
    (Sink, "commit", _commit_without_a_look_at_the_journal),
]


@pytest.mark.parametrize(("where", "name", "bug"), PLANTED, ids=[bug.__name__ for _, _, bug in PLANTED])
def test_a_planted_bug_is_found(
    where: object, name: str, bug: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug)
    with pytest.raises((AssertionError, UnreadableJournal)):
        _all_faults_pass()


def _all_faults_pass() -> None:
    for fault in FAULTS:
        for protocol in (1, 2):
            test_ends_exactly_once_or_loudly(fault, protocol)
