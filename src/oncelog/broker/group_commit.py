"""Flushes shared by all who wait for them: while one fsync runs, later appends gather for the next.

Owns who waits for which offset of which log. `run_in_thread(work, done)` is given by the shell: it runs `work`
elsewhere and calls `done(result, error, now_ms)` back on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.errors import KafkaError, KafkaStorageError
from oncelog.log.partition_log import PartitionLog

FlushEnded = Callable[[KafkaError | None], None]
RunInThread = Callable[[Callable[[], None], Callable[[None, Exception | None, int], None]], None]


class GroupCommit:
    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._waiting: dict[PartitionLog, list[tuple[int, FlushEnded]]] = {}
        self._running: set[PartitionLog] = set()

    def wait(self, log: PartitionLog, offset: int, ended: FlushEnded) -> None:
        """Call `ended` once everything below `offset` is on the disk, or with the error that prevents it."""
        self._waiting.setdefault(log, []).append((offset, ended))
        self.flush(log)

    def flush(self, log: PartitionLog) -> None:
        """Start a flush, unless one runs: its end starts the next."""
        if log in self._running:
            return
        request = log.flush_request()
        if request is None:
            self._answer(log, None)
            return
        self._running.add(log)

        def done(_: None, error: Exception | None, now_ms: int) -> None:
            self._running.discard(log)
            if error is None:
                log.flushed(request, now_ms)
                self._answer(log, None)
            else:
                log.flush_failed(error)
                self._answer(log, KafkaStorageError(f"the disk refused a flush: {error}"))
            if log in self._waiting:
                self.flush(log)

        self._run_in_thread(request.run, done)

    def _answer(self, log: PartitionLog, error: KafkaError | None) -> None:
        waiting = self._waiting.pop(log, [])
        later = []
        for offset, ended in waiting:
            if error is None and offset > log.recovery_point:
                later.append((offset, ended))
            else:
                ended(error)
        if later:
            self._waiting[log] = later
