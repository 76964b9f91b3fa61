"""Flushes shared by all who wait for them: while one fsync runs, later appends gather for the next.

Owns who waits for which offset of which log, and that a log has one flush under way at a time: of two, the kernel would
tell only one that the disk has failed, and the other would believe that its bytes are safe. `run_in_thread(work, done)`
is given by the shell: it runs `work` elsewhere and calls `done(result, error, now_ms)` back on the loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from oncelog.errors import KafkaError, KafkaStorageError
from oncelog.log.partition_log import PartitionLog
from oncelog.named_tuple import NamedTuple

Answer = Callable[[KafkaError | None], None]
Done = Callable[[None, Exception | None, int], None]
RunInThread = Callable[[Callable[[], None], Done], None]


class _Flush(NamedTuple):
    run: Callable[[], None]
    done: Done


class _Waiter(NamedTuple):
    offset: int
    answer: Answer


class GroupCommit:
    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._waiting: dict[PartitionLog, list[_Waiter]] = {}
        self._running: set[PartitionLog] = set()
        self._queued: dict[PartitionLog, deque[_Flush]] = {}

    def wait(self, log: PartitionLog, offset: int, answer: Answer) -> None:
        """Call `answer` once everything below `offset` is on the disk, or with the error that prevents it."""
        self._waiting.setdefault(log, []).append(_Waiter(offset, answer))
        if log not in self._running:
            self._flush(log)

    def run(self, log: PartitionLog, flush: Callable[[], None], done: Done) -> None:
        """Run somebody else's flush of a log, after those that are under way."""
        if log in self._running:
            self._queued.setdefault(log, deque()).append(_Flush(flush, done))
        else:
            self._start(log, _Flush(flush, done))

    def _flush(self, log: PartitionLog) -> None:
        """Begin a flush for all who wait, unless what they wait for is durable already, or never will be."""
        try:
            request = log.flush_request()
        except KafkaStorageError as error:
            self._answer(log, error)
            return
        if request is None:
            self._answer(log, None)
            return

        def done(_: None, error: Exception | None, now_ms: int) -> None:
            if error is None:
                log.flushed(request, now_ms)
                self._answer(log, None)
            else:
                log.flush_failed(error)
                self._answer(log, KafkaStorageError(f"the disk refused a flush: {error}"))

        self._start(log, _Flush(request.run, done))

    def _start(self, log: PartitionLog, flush: _Flush) -> None:
        self._running.add(log)

        def ended(_: None, error: Exception | None, now_ms: int) -> None:
            try:
                flush.done(None, error, now_ms)
            finally:
                self._running.discard(log)
                self._go_on(log, now_ms)

        self._run_in_thread(flush.run, ended)

    def _go_on(self, log: PartitionLog, now_ms: int) -> None:
        queued = self._queued.pop(log, deque())
        while queued and log.offline:
            # A sync after a failed one proves nothing, so it is not even tried.
            queued.popleft().done(None, KafkaStorageError(f"{log.topic_partition} is offline"), now_ms)
        if queued:
            self._start(log, queued.popleft())
            if queued:
                self._queued[log] = queued
        elif log in self._waiting:
            self._flush(log)

    def _answer(self, log: PartitionLog, error: KafkaError | None) -> None:
        """Answer those whose records are durable, and on an error all others too. An answer may lead to more waiting,
        so everyone who stays is noted before the first is given."""
        waiting = self._waiting.pop(log, [])
        durable = log.recovery_point
        if error is None and log.offline:
            error = KafkaStorageError(f"{log.topic_partition} went offline before it was flushed")
        if error is None:
            later = [waiter for waiter in waiting if waiter.offset > durable]
            if later:
                self._waiting[log] = later
            waiting = [waiter for waiter in waiting if waiter.offset <= durable]
        bug: Exception | None = None
        for waiter in waiting:
            try:
                waiter.answer(error)
            except Exception as raised:  # no reason to leave the others without theirs
                bug = bug or raised
        if bug is not None:
            raise bug
