"""Processors and readers as processes that are killed. Run as a process of its own, it forks one life after another.

The process imports everything once and has no threads: a fork is a fresh client within milliseconds. A processor
consumes, transforms and produces in transactions, a few of which it aborts on purpose; a reader follows what they
write. Each life keeps a history in files of its own, and adds a byte to `progress` for each transaction it committed.
SIGTERM asks it to leave.

Processors are written by hand over the clients of `transaction_clients`, or as a function for `oncelog.process()`.

An input is `PARTITION/NUMBER`; what becomes of it is `STREAM/NUMBER ATTEMPT`: every stream of an output partition
counts from 0 without a hole, and no two attempts at a record have the same value.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import oncelog
from oncelog.audit.history.model import GroupOffset, Outcome, Records
from oncelog.audit.history.recorder import Recorder
from oncelog.client.transaction_errors import TransactionFailed
from oncelog.types import TopicPartition
from tests.faults.transaction_clients import CLIENTS, ONCELOG, GaveUp, NeedsAbort, OncelogConsumer, Polled

ROOT = Path(__file__).parent.parent.parent
INPUT, OUTPUT, GROUP = "orders", "bills", "billing"
PARTITIONS = 4
POLL_S = 0.1
MAX_BATCH = 400
ABORT_CHANCE = 0.05
FLUSH_CHANCE = 0.5

Positions = dict[TopicPartition, int]
OUTPUTS = [TopicPartition(OUTPUT, index) for index in range(PARTITIONS)]


def transformed(polled: list[Polled], attempt: str) -> dict[TopicPartition, list[str]]:
    """What the records become, and where it goes."""
    sends: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for one in polled:
        source, number = one.value.split("/")
        target = int(number) % PARTITIONS
        sends[OUTPUTS[target]].append(f"{source}-{target}/{int(number) // PARTITIONS} {attempt}")
    return sends


def positions_before(polled: list[Polled]) -> Positions:
    return {one.partition: one.offset for one in reversed(polled)}


def positions_after(polled: list[Polled]) -> Positions:
    return {one.partition: one.offset + 1 for one in polled}


def by_partition(polled: list[Polled]) -> list[Records]:
    found: defaultdict[TopicPartition, list[Polled]] = defaultdict(list)
    for one in polled:
        found[one.partition].append(one)
    return [
        Records(partition, [one.value for one in several], [one.offset for one in several])
        for partition, several in found.items()
    ]


class Life:
    def __init__(self, order: dict[str, Any]) -> None:
        self.name: str = order["name"]
        self.order = order
        self.chance = random.Random(order["seed"])
        self.is_leaving = False
        self._attempts = 0
        signal.signal(signal.SIGTERM, lambda *_: self._leave())
        self._progress = self._open("progress")

    def _open(self, name: str) -> int:
        return os.open(Path(self.order["directory"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _leave(self) -> None:
        self.is_leaving = True

    def new_recorder(self, name: str) -> Recorder:
        file = self._open(f"{name}.history")
        return Recorder(name, lambda line: os.write(file, line), time.monotonic_ns)

    def new_attempt(self) -> str:
        self._attempts += 1
        return f"{self.order['life']}.{self._attempts}"

    def has_committed(self) -> None:
        os.write(self._progress, b".")


class ByHand(Life):
    """A reader, or a processor, over a consumer and a producer."""

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self.recorder = self.new_recorder(self.name)
        consumer, self.new_producer = CLIENTS[order["client"]]
        self.consumer = consumer(order["servers"], **order["settings"])

    def read(self) -> None:
        reads_committed = self.order["settings"].get("isolation_level") != "read_uncommitted"
        self.consumer.assign(OUTPUTS, from_start=self.order["from_start"])
        while not self.is_leaving:
            self.recorder.begin(reads_committed=reads_committed)
            if polled := self.consumer.poll(MAX_BATCH, POLL_S):
                self.recorder.note(moved=self._moved(), polls=by_partition(polled))
                self.recorder.end(Outcome.OK)
        self.consumer.close()

    def process(self) -> None:
        producer = self.new_producer(self.order["servers"], self.order["transactional_id"])
        self.consumer.subscribe(INPUT)
        while not self.is_leaving:
            polled = self.consumer.poll(self.chance.randint(1, MAX_BATCH), POLL_S)
            moved = self._moved()
            if moved:
                self._look_up(moved)
            if polled:
                self._transact(producer, polled, moved)
        self.consumer.close()

    def _moved(self) -> list[TopicPartition]:
        moved = sorted(self.consumer.moved)
        self.consumer.moved.clear()
        return moved

    def _look_up(self, partitions: list[TopicPartition]) -> None:
        self.recorder.begin()
        found = self.consumer.committed(partitions)
        self.recorder.note(
            moved=partitions, offset_reads=[GroupOffset(GROUP, one, offset) for one, offset in found.items()]
        )
        self.recorder.end(Outcome.OK)

    def _transact(self, producer: Any, polled: list[Polled], moved: list[TopicPartition]) -> None:
        recorder = self.recorder
        recorder.begin(is_transaction=True)
        recorder.note(moved=moved, polls=by_partition(polled))
        producer.begin()
        try:
            self._send(producer, polled)
            if self.chance.random() < ABORT_CHANCE:
                raise NeedsAbort("for no reason")
            producer.commit()
        except NeedsAbort:
            producer.abort()
            recorder.end(Outcome.FAILED)
            self.consumer.rewind(positions_before(polled))
        else:
            recorder.end(Outcome.OK)
            self.has_committed()

    def _send(self, producer: Any, polled: list[Polled]) -> None:
        """All that belongs to the transaction; what is known of it is written down before it is to be committed."""
        sends = transformed(polled, self.new_attempt())
        self.recorder.note(sends=[Records(target, values, ()) for target, values in sends.items()])
        acks: list[list[int]] = [[] for _ in sends]
        for entry, (target, values) in enumerate(sends.items()):
            for value in values:
                producer.send(target, value, acks[entry])
        positions = positions_after(polled)
        producer.send_offsets(positions, self.consumer)
        if self.chance.random() < FLUSH_CHANCE:  # else they leave with the commit
            producer.flush()
        self.recorder.note(
            acks=acks,
            offset_commits=[GroupOffset(GROUP, one, offset) for one, offset in positions.items()],
            is_committing=True,
        )


class Attempt(NamedTuple):
    """A batch that was transformed, and of which nothing is known yet."""

    recorder: Recorder
    starts: Positions
    ends: Positions

    def overlaps(self, starts: Positions, ends: Positions) -> bool:
        return any(one in self.ends and starts[one] < self.ends[one] and self.starts[one] < ends[one] for one in starts)


class AsFunction(Life):
    """A processor that is a function for `oncelog.process()`.

    That transforms one batch while it commits another, so each that is underway has a recorder of its own; a recorder
    tells of some batches only, and its reader seems to move. A batch that is transformed again was not committed
    before, and never will be.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order)
        self._idle: list[Recorder] = []
        self._recorders = 0
        self._underway: list[Attempt] = []
        self._stop = threading.Event()
        self._is_lucky = True

    def _leave(self) -> None:
        self._stop.set()

    def process(self) -> None:
        oncelog.process(
            INPUT,
            self._transform,
            OUTPUT,
            bootstrap_servers=self.order["servers"],
            group=GROUP,
            transactional_id=self.order["transactional_id"],
            batch_records=self.chance.randint(MAX_BATCH // 20, MAX_BATCH),
            consumer={**OncelogConsumer.DEFAULTS, **self.order["settings"]},
            producer=ONCELOG,
            stop=self._stop,
            on_batch=self._committed,
        )

    def _transform(self, records: list[oncelog.ConsumerRecord]) -> list[oncelog.ProducerRecord | None]:
        polled = [Polled(TopicPartition(one.topic, one.partition), one.offset, one.value.decode()) for one in records]
        starts, ends = positions_before(polled), positions_after(polled)
        for attempt in [one for one in self._underway if one.overlaps(starts, ends)]:
            self._end(attempt, Outcome.FAILED)
        sends = transformed(polled, self.new_attempt())
        recorder = self._an_idle_recorder()
        recorder.begin(is_transaction=True)
        recorder.note(
            moved=ends,
            polls=by_partition(polled),
            sends=[Records(target, values, ()) for target, values in sends.items()],
            offset_commits=[GroupOffset(GROUP, one, offset) for one, offset in ends.items()],
            is_committing=True,
        )
        self._underway.append(Attempt(recorder, starts, ends))
        outputs = [
            oncelog.ProducerRecord(target.topic, value, None, target.partition)
            for target, values in sends.items()
            for value in values
        ]
        # Nobody can send None: the transaction is aborted when it comes to that, and the function called again.
        self._is_lucky = not self._is_lucky or self.chance.random() > ABORT_CHANCE
        return [*outputs, *([] if self._is_lucky else [None])]

    def _an_idle_recorder(self) -> Recorder:
        if self._idle:
            return self._idle.pop()
        self._recorders += 1
        return self.new_recorder(f"{self.name} hand {self._recorders}")

    def _committed(self, batch: oncelog.BatchReport) -> None:
        offsets = {one: committed.offset for one, committed in batch.offsets.items()}
        (attempt,) = (one for one in self._underway if one.ends == offsets)
        self._end(attempt, Outcome.OK)
        self.has_committed()

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.recorder.end(outcome)
        self._underway.remove(attempt)
        self._idle.append(attempt.recorder)


def live(order: dict[str, Any]) -> None:
    if order["kind"] == "reader":
        ByHand(order).read()
    elif order["client"] == "process":
        AsFunction(order).process()
    else:
        ByHand(order).process()


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                live(order)
                os._exit(0)
            except (GaveUp, TransactionFailed) as error:
                # On a machine so slow that a transaction timed out.
                print(f"{order['name']} gave up: {error}", file=sys.stderr, flush=True)
            except BaseException:
                with open(Path(order["directory"]) / "broken", "a") as broken:
                    broken.write(f"{order['name']}: {traceback.format_exc()}\n")
            finally:
                os._exit(1)
        print(pid, flush=True)


class Lives:
    """The process that makes clients, seen from a test. Those that still run at the end are killed."""

    def __init__(self, directory: Path, servers: str, client: str) -> None:
        self.directory = directory
        self._common = {"servers": servers, "client": client, "directory": str(directory)}
        self._count = 0
        self._pids: dict[str, int] = {}
        directory.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.transaction_lives"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, kind: str, seed: int, **order: Any) -> str:
        """A new life; its name."""
        self._count += 1
        name = f"{kind} {self._count}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        full = {**self._common, "kind": kind, "name": name, "life": self._count, "seed": seed, **order}
        print(json.dumps(full), file=self._process.stdin, flush=True)
        self._pids[name] = int(self._process.stdout.readline())
        return name

    def signal(self, name: str, number: int) -> bool:
        """False if it has ended already."""
        try:
            os.kill(self._pids[name], number)
        except ProcessLookupError:
            return False
        return True

    def is_running(self, name: str) -> bool:
        return self.signal(name, 0)

    @property
    def commits(self) -> int:
        """Transactions that were committed so far, by all."""
        path = self.directory / "progress"
        return path.stat().st_size if path.exists() else 0

    @property
    def broken(self) -> str:
        """Why some ended that should have lived on."""
        path = self.directory / "broken"
        return path.read_text() if path.exists() else ""

    def histories(self) -> list[Path]:
        return sorted(self.directory.glob("*.history"))

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._pids:
            self.signal(name, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    serve()
