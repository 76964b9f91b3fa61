"""Histories survive the file, whole or cut off anywhere."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.audit.history.checker import check
from oncelog.audit.history.codec import HistoryDamaged, decode_history
from oncelog.audit.history.model import GroupOffset, Operation, Outcome, Records
from oncelog.audit.history.recorder import Recorder
from oncelog.types import NO_OFFSET, TopicPartition
from tests.audit.history.world import World

FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)
POLLS = (Records(ORDERS, ["a", "b"], [17, 18]),)
SENDS = (Records(BILLS, ["a.3", "b.3"], [40, 41]),)
COMMITS = (GroupOffset("billing", ORDERS, 19),)


def record(operations: Iterable[Operation]) -> list[bytes]:
    """The file of one process that did these."""
    moments: deque[int] = deque()
    lines: list[bytes] = []
    recorder: Recorder | None = None
    for operation in operations:
        recorder = recorder or Recorder(operation.process, lines.append, moments.popleft)
        moments += [operation.invoked, operation.completed or 0]
        recorder.begin(is_transaction=operation.is_transaction, reads_committed=operation.reads_committed)
        recorder.note(moved=operation.moved, polls=operation.polls, offset_reads=operation.offset_reads)
        recorder.note(sends=operation.sends, drained=operation.drained)
        acks = [records.offsets for records in operation.sends]
        recorder.note(acks=acks, offset_commits=operation.offset_commits, is_committing=True)
        if operation.completed is None:
            moments.clear()
        else:
            recorder.end(operation.outcome)
    return lines


def a_transaction(lines: list[bytes]) -> Recorder:
    """One that has polled and announced its sends."""
    moments = iter(range(100, 1_000))
    recorder = Recorder("processor 1", lines.append, lambda: next(moments))
    recorder.begin(is_transaction=True)
    recorder.note(polls=POLLS, moved=[ORDERS])
    recorder.note(sends=SENDS)
    return recorder


@FEW
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_a_history_comes_back_as_it_was(chance: random.Random, steps: int) -> None:
    world = World(chance)
    world.run(steps)
    world.drain()
    told = check(world.operations)
    processes = dict.fromkeys(operation.process for operation in world.operations)
    read = [
        operation
        for process in processes
        for operation in decode_history(record(one for one in world.operations if one.process == process))
    ]
    assert check(read) == told
    assert [(one.process, one.invoked, one.completed, one.outcome) for one in read] == [
        (one.process, one.invoked, one.completed, one.outcome)
        for process in processes
        for one in world.operations
        if one.process == process
    ]


def test_all_of_a_transaction_is_told() -> None:
    lines: list[bytes] = []
    recorder = a_transaction(lines)
    recorder.note(acks=[[40, 41]], offset_commits=COMMITS, is_committing=True)
    recorder.end(Outcome.OK)
    (operation,) = decode_history(lines)
    assert operation == Operation(
        process="processor 1",
        number=1,
        invoked=100,
        completed=101,
        outcome=Outcome.OK,
        is_transaction=True,
        moved=[ORDERS],
        polls=list(POLLS),
        sends=list(SENDS),
        offset_commits=list(COMMITS),
        offset_reads=[],
        drained=[],
    )


def test_who_was_killed_before_asking_to_commit_has_not_committed() -> None:
    lines: list[bytes] = []
    a_transaction(lines)
    (operation,) = decode_history(lines)
    assert (operation.outcome, operation.completed) == (Outcome.FAILED, None)
    assert operation.sends == [Records(BILLS, ["a.3", "b.3"], [NO_OFFSET, NO_OFFSET])]


def test_who_was_killed_while_committing_may_have_committed() -> None:
    lines: list[bytes] = []
    a_transaction(lines).note(acks=[[40]], is_committing=True)
    (operation,) = decode_history(lines)
    assert operation.outcome is Outcome.UNKNOWN
    assert operation.sends[0].offsets == [40, NO_OFFSET]


def test_plain_sends_that_were_never_answered_may_be_stored() -> None:
    lines: list[bytes] = []
    recorder = Recorder("feeder", lines.append, lambda: 1)
    recorder.begin()
    recorder.note(sends=SENDS)
    recorder.begin()
    recorder.note(offset_reads=COMMITS)
    recorder.end(Outcome.OK)
    first, second = decode_history(lines)
    assert (first.number, first.outcome) == (1, Outcome.UNKNOWN)
    assert (second.number, second.offset_reads) == (2, list(COMMITS))


def test_an_operation_with_nothing_to_tell_is_not_written() -> None:
    lines: list[bytes] = []
    recorder = Recorder("reader", lines.append, lambda: 1)
    recorder.begin()
    recorder.begin()
    recorder.note(polls=POLLS)
    recorder.end(Outcome.OK)
    assert len(list(decode_history(lines))) == 1


def test_a_file_that_is_cut_off_anywhere_tells_what_was_whole() -> None:
    lines: list[bytes] = []
    recorder = a_transaction(lines)
    recorder.note(acks=[[40, 41]], offset_commits=COMMITS, is_committing=True)
    recorder.end(Outcome.OK)
    whole = b"".join(lines)
    for size in range(len(whole)):
        left = whole[:size].splitlines(keepends=True)
        complete = [line for line in left if line.endswith(b"\n")]
        assert list(decode_history(left)) == list(decode_history(complete))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b'{"process":"a"}\n', b'{"begin":1,"po\n', b'{"begin":2}\n'], "a line in the middle is torn"),
        ([b'{"process":"a"}\n', b'[1]\n', b'{"begin":2}\n'], "a line in the middle is torn"),
        ([b'{"begin":1}\n'], "the first line should name the process"),
        ([b'{"process":"a"}\n', b'{"end":1}\n'], "belongs to no operation"),
        ([b'{"process":"a"}\n', b'{"begin":1,"end":2,"outcome":"fine"}\n'], "operation 1 of a cannot be understood"),
        ([b'{"process":"a"}\n', b'{"begin":1,"end":2,"polls":[["t"]]}\n'], "operation 1 of a cannot be understood"),
    ],
)  # fmt: skip
def test_damage_elsewhere_is_refused(lines: list[bytes], message: str) -> None:
    with pytest.raises(HistoryDamaged, match=message):
        list(decode_history(lines))
