"""The offsets of groups: they go forward, last, and cover what was consumed once and without a hole."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog.audit.history.fates import fate
from oncelog.audit.history.model import GroupOffset, Operation, Outcome
from oncelog.audit.history.picture import SPAN, Picture
from oncelog.audit.history.report import Findings, Kind
from oncelog.types import NO_OFFSET, TopicPartition

NEVER = 1 << 63
"""When something completed that nobody was told of: after all that the history says."""

Course = tuple[str, TopicPartition]
"""The offsets of one group and partition."""


class _Commit(NamedTuple):
    invoked: int
    completed: int
    offset: int
    first_polled: int | None
    is_certain: bool
    operation: Operation


class _Read(NamedTuple):
    invoked: int
    completed: int
    offset: int
    operation: Operation


class GroupOffsets:
    """Judges the operations that committed offsets or looked at them, when the whole history is known."""

    def __init__(self, picture: Picture, findings: Findings) -> None:
        self._picture = picture
        self._findings = findings

    def judge(self, operations: Iterable[Operation]) -> None:
        commits: defaultdict[Course, list[_Commit]] = defaultdict(list)
        reads: defaultdict[Course, list[_Read]] = defaultdict(list)
        for operation in operations:
            completed = NEVER if operation.completed is None else operation.completed
            outcome = fate(operation, self._picture)
            for committed in operation.offset_commits if outcome is not Outcome.FAILED else ():
                commits[committed[:2]].append(_commit(operation, outcome, committed, completed))
            # An offset that is still part of an open transaction is hidden from those alone who ask for stable ones.
            for group, partition, offset in operation.offset_reads if operation.reads_committed else ():
                reads[group, partition].append(_Read(operation.invoked, completed, offset, operation))
        for course in sorted(commits.keys() | reads.keys()):
            self._judge_commits(course, commits[course])
            self._judge_reads(course, commits[course], reads[course])
            self._judge_consumed(course, [one for one in commits[course] if one.operation.is_transaction])

    def _judge_commits(self, course: Course, commits: Sequence[_Commit]) -> None:
        certain = [commit for commit in commits if commit.is_certain]
        before = _Before(certain)
        for commit in sorted(certain, key=lambda one: one.invoked):
            highest = before.highest(commit.invoked)
            if highest is not None and commit.offset < highest.offset:
                self._findings.add(
                    Kind.NONMONOTONIC_OFFSET_COMMIT,
                    f"{commit.operation} committed offset {commit.offset} of {_name(course)}, after "
                    f"{highest.operation} had committed {highest.offset}",
                )

    def _judge_reads(self, course: Course, commits: Sequence[_Commit], reads: Sequence[_Read]) -> None:
        before = _Before([commit for commit in commits if commit.is_certain])
        earliest: dict[int, int] = {}
        for commit in commits:
            earliest[commit.offset] = min(commit.invoked, earliest.get(commit.offset, NEVER))
        for read in sorted(reads, key=lambda one: one.invoked):
            highest = before.highest(read.invoked)
            if highest is not None and read.offset < highest.offset:
                self._findings.add(
                    Kind.LOST_OFFSET_COMMIT,
                    f"{read.operation} found offset {read.offset} of {_name(course)}, after {highest.operation} had "
                    f"committed {highest.offset}",
                )
            elif read.offset != NO_OFFSET and earliest.get(read.offset, NEVER) > read.completed:
                self._findings.add(
                    Kind.PHANTOM_OFFSET_COMMIT,
                    f"{read.operation} found offset {read.offset} of {_name(course)}, which was not committed",
                )

    def _judge_consumed(self, course: Course, commits: Sequence[_Commit]) -> None:
        """Certain commits must follow each other like the pieces of one rope; unknown ones may fill a hole."""
        base = self._picture.base(course[1])
        places: Sequence[int] | None = None
        last: _Commit | None = None
        for commit in sorted((one for one in commits if one.is_certain and _start(one) < one.offset), key=_start):
            if last is not None and _start(commit) < last.offset:
                self._findings.add(
                    Kind.CONSUMED_TWICE,
                    f"{commit.operation} consumed {_name(course)} from offset {_start(commit)} on, {last.operation} "
                    f"from {_start(last)} up to {last.offset}",
                )
            end = 0 if last is None else last.offset
            if _start(commit) > end:
                places = places or self._places_to_consume(base, commits)
                skipped = places[bisect_left(places, base + end) : bisect_left(places, base + _start(commit))]
                for place in skipped:
                    self._findings.add(
                        Kind.NEVER_CONSUMED,
                        f"{self._picture.value_at(place)!r} at {self._picture.name(place)}: group {course[0]} left it "
                        f"out before {commit.operation}",
                    )
            last = commit if last is None or commit.offset > last.offset else last

    def _places_to_consume(self, base: int, commits: Sequence[_Commit]) -> list[int]:
        """Where records of the partition are that somebody could read, but for those that unknown ones may have."""
        perhaps = [(base + _start(one), base + one.offset) for one in commits if not one.is_certain]
        places = self._picture.places()
        return [
            place
            for place in places[bisect_left(places, base) : bisect_left(places, base + SPAN)]
            if self._picture.value_at(place) in self._picture.visible
            and not any(start <= place < end for start, end in perhaps)
        ]


class _Before:
    """The highest commit that had completed before a moment; moments are asked for in order."""

    def __init__(self, commits: Sequence[_Commit]) -> None:
        self._waiting = sorted(commits, key=lambda one: one.completed, reverse=True)
        self._highest: _Commit | None = None

    def highest(self, moment: int) -> _Commit | None:
        while self._waiting and self._waiting[-1].completed < moment:
            commit = self._waiting.pop()
            if self._highest is None or commit.offset > self._highest.offset:
                self._highest = commit
        return self._highest


def _commit(operation: Operation, outcome: Outcome, committed: GroupOffset, completed: int) -> _Commit:
    polled = [records.offsets[0] for records in operation.polls if records.partition == committed.partition]
    first_polled = min(polled) if polled else None
    is_certain = outcome is Outcome.OK
    return _Commit(operation.invoked, completed, committed.offset, first_polled, is_certain, operation)


def _start(commit: _Commit) -> int:
    """Where it began to consume; a commit without polls consumed nothing that the history knows."""
    return commit.offset if commit.first_polled is None else commit.first_polled


def _name(course: Course) -> str:
    return f"{course[1]} in group {course[0]}"
