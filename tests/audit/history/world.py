"""A log with transactions, and clients that keep histories of it: all that they write down is possible.

A feeder sends to the topic `in`; processors read it, and write to `out` and the group's offsets in transactions, which
alternate and end in every way that there is; readers follow. Which client does its next step is the random source's
choice. `drain` ends all and reads all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from oncelog.audit.history.model import GroupOffset, Operation, Outcome, Records, Value
from oncelog.types import NO_OFFSET, TopicPartition

GROUP = "billing"
INPUTS = [TopicPartition("in", index) for index in range(2)]
OUTPUTS = [TopicPartition("out", index) for index in range(3)]
MARKER = "marker"


@dataclass(slots=True)
class Entry:
    """What stands at one offset. `is_open` until its transaction ends, `is_visible` if that committed."""

    value: Value
    is_open: bool = False
    is_visible: bool = True


@dataclass(slots=True)
class Log:
    entries: list[Entry] = field(default_factory=list)

    def append(self, value: Value, *, is_open: bool = False, is_visible: bool = True) -> tuple[int, Entry]:
        entry = Entry(value, is_open, is_visible)
        self.entries.append(entry)
        return len(self.entries) - 1, entry

    @property
    def last_stable_offset(self) -> int:
        return next((offset for offset, entry in enumerate(self.entries) if entry.is_open), len(self.entries))

    def read(self, start: int, end: int, *, committed_only: bool) -> list[tuple[int, Value]]:
        return [
            (offset, entry.value)
            for offset, entry in enumerate(self.entries[start:end], start)
            if entry.value != MARKER and (entry.is_visible or not committed_only)
        ]


@dataclass(slots=True)
class Reader:
    process: str
    reads_committed: bool
    number: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Processor:
    process: str
    source: TopicPartition
    number: int = 0
    position: int | None = None
    invoked: int = 0
    polls: list[tuple[int, Value]] = field(default_factory=list)
    sends: list[tuple[TopicPartition, int, Value, Entry]] = field(default_factory=list)


class World:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.operations: list[Operation] = []
        self.logs = {partition: Log() for partition in INPUTS + OUTPUTS}
        self.committed = dict.fromkeys(INPUTS, NO_OFFSET)
        self._now = 0
        self._values = 0
        self._lives = 0
        self._fed = 0
        self._processors = [self._newborn(source) for source in INPUTS]
        self._readers = [Reader("reader committed", True), Reader("reader uncommitted", False)]

    def now(self) -> int:
        self._now += 1
        return self._now

    def new_value(self) -> Value:
        self._values += 1
        return self._values if self._values % 2 else f"value {self._values}"

    def run(self, steps: int) -> None:
        self._feed()
        for outcome in ("commit", "abort", "lost commit", "lost abort"):  # at least one of each
            for processor in list(self._processors):
                self._send(processor)
                self._send(processor)
                self._end(processor, outcome)
        for _ in range(steps):
            processor = self.chance.choice(self._processors)
            match self.chance.randrange(6):
                case 0:
                    self._feed()
                case 1 | 2:
                    self._send(processor)
                case 3:
                    self._end(processor, self.chance.choice(["commit", "commit", "abort", "lost commit", "lost abort"]))
                case _:
                    self._poll(self.chance.choice(self._readers))

    def settle(self) -> None:
        """No transaction is open any more."""
        for processor in self._processors:
            self._end(processor, "commit")

    def cut_off(self) -> None:
        """All clients die where they are; what they had begun stays open."""
        for processor in self._processors:
            if processor.sends:
                self._note_transaction(processor, Outcome.FAILED, None)

    def drain(self) -> None:
        self.settle()
        reader = Reader("final reader", True)
        for partition in self.logs:
            self._poll(reader, partition)
        self.note(Operation("drainer", 1, self.now(), self.now(), Outcome.OK, drained=tuple(self.logs)))

    def note(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _feed(self) -> None:
        partition = self.chance.choice(INPUTS)
        values = [self.new_value() for _ in range(self.chance.randint(1, 4))]
        offsets = [self.logs[partition].append(value)[0] for value in values]
        outcome = Outcome.OK
        if self.chance.random() < 0.2:
            outcome, offsets = Outcome.UNKNOWN, [NO_OFFSET] * len(values)
        self._fed += 1
        sends = (Records(partition, values, offsets),)
        self.note(Operation("feeder", self._fed, self.now(), self.now(), outcome, sends=sends))

    def _newborn(self, source: TopicPartition) -> Processor:
        self._lives += 1
        return Processor(f"processor {self._lives}", source)

    def _send(self, processor: Processor) -> None:
        """Begin a transaction, or go on with it: one record polled, one sent."""
        if not processor.sends:
            processor.invoked = self.now()
            if processor.position is None:
                self._look_up(processor)
        position = max(processor.position or 0, 0)
        new = self.logs[processor.source].read(position, position + 1, committed_only=True)
        processor.polls += new
        processor.position = position + len(new)
        target, value = self.chance.choice(OUTPUTS), self.new_value()
        offset, entry = self.logs[target].append(value, is_open=True, is_visible=False)
        processor.sends.append((target, offset, value, entry))

    def _look_up(self, processor: Processor) -> None:
        processor.position = self.committed[processor.source]
        found = (GroupOffset(GROUP, processor.source, processor.position),)
        processor.number += 1
        looked = Operation(
            processor.process, processor.number, self.now(), self.now(), Outcome.OK, offset_reads=found,
            moved=(processor.source,),
        )  # fmt: skip
        self.note(looked)

    def _end(self, processor: Processor, how: str) -> None:
        if not processor.sends:
            return
        is_commit, is_told = how.endswith("commit"), not how.startswith("lost")
        for _, _, _, entry in processor.sends:
            entry.is_open, entry.is_visible = False, is_commit
        for target in {target for target, *_ in processor.sends}:
            self.logs[target].append(MARKER)
        if is_commit:
            self.committed[processor.source] = max(processor.position or 0, 0)
        told = Outcome.OK if is_commit else Outcome.FAILED
        self._note_transaction(processor, told if is_told else Outcome.UNKNOWN, self.now() if is_told else None)
        if is_commit and is_told:
            processor.polls, processor.sends = [], []
        else:  # it dies, or is told to begin again
            self._processors[self._processors.index(processor)] = self._newborn(processor.source)

    def _note_transaction(self, processor: Processor, outcome: Outcome, completed: int | None) -> None:
        processor.number += 1
        position = max(processor.position or 0, 0)
        self.note(
            Operation(
                processor.process,
                processor.number,
                processor.invoked,
                completed,
                outcome,
                is_transaction=True,
                polls=_records([(processor.source, *one) for one in processor.polls]),
                sends=_records([(target, offset, value) for target, offset, value, _ in processor.sends]),
                offset_commits=(GroupOffset(GROUP, processor.source, position),),
            )
        )

    def _poll(self, reader: Reader, only: TopicPartition | None = None) -> None:
        partition = only or self.chance.choice(list(self.logs))
        log, start = self.logs[partition], reader.positions.get(partition, 0)
        end = log.last_stable_offset if reader.reads_committed else len(log.entries)
        if only is None:
            end = min(end, start + self.chance.randint(1, 5))
        found = log.read(start, end, committed_only=reader.reads_committed)
        reader.positions[partition] = end
        reader.number += 1
        polls = _records([(partition, *one) for one in found])
        self.note(
            Operation(
                reader.process, reader.number, self.now(), self.now(), Outcome.OK,
                reads_committed=reader.reads_committed, polls=polls,
            )
        )  # fmt: skip


def _records(found: list[tuple[TopicPartition, int, Value]]) -> tuple[Records, ...]:
    partitions = dict.fromkeys(partition for partition, _, _ in found)
    return tuple(
        Records(
            partition,
            tuple(value for one, _, value in found if one == partition),
            tuple(offset for one, offset, _ in found if one == partition),
        )
        for partition in partitions
    )
