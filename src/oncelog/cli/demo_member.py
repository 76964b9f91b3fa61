"""A process of the demo: one member of a group, which books what it reads into SQLite.

Two traps may be set for it: one catches it right after a batch was booked, before its offsets can be committed, and
there it is killed; in the other it falls asleep with a batch in hand, until it is woken.

`once` books with `oncelog.once` what was committed: the position of a partition is kept with the rows, in one
transaction. `plain` books what is there, with automatic commits and no other guarantee, as is the default of clients.
The process leaves its group when its standard input ends, which also happens when the demo is killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from oncelog import once
from oncelog.audit.bookings import Bookings, book
from oncelog.cli.demo_trap import Trap
from oncelog.consumer.consumer import Consumer
from oncelog.records.kernel import ConsumerRecord

STANDARD_INPUT = 0
BATCH_SIZE = 500
POLL_S = 0.5
SESSION_TIMEOUT_MS = 3_000
"""Short, so that the group soon misses a member that was killed. On a busy machine it may miss one that lives: that
costs time and breaks nothing."""


class Way(StrEnum):
    ONCE = "once"
    PLAIN = "plain"


class _TrappedConsumer(Consumer):
    """Polls again only if its last batch, which is booked by then, did not lead it into a trap."""

    def __init__(self, kill_trap: Trap, sleep_trap: Trap, servers: str, **settings: Any) -> None:
        super().__init__(servers, **settings)
        self._kill_trap = kill_trap
        self._sleep_trap = sleep_trap
        self._has_booked = False
        self.is_leaving = threading.Event()

    def poll(self, timeout: float | None = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        if self._has_booked and self._kill_trap.step_in(os.getpid()):
            self.is_leaving.wait()  # for ever, unless the demo itself was killed: it kills whoever is caught
        records = super().poll(timeout, max_records=max_records)
        self._has_booked = bool(records)
        if records and self._sleep_trap.step_in(os.getpid()):
            os.kill(os.getpid(), signal.SIGSTOP)
        return records


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", type=Way, choices=list(Way))
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("database")
    parser.add_argument("kill_trap", type=Path)
    parser.add_argument("sleep_trap", type=Path)
    args = parser.parse_args(words)
    consumer = _TrappedConsumer(
        Trap(args.kill_trap),
        Trap(args.sleep_trap),
        args.bootstrap_servers,
        group_id=f"{args.way}-bookers",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        max_poll_records=BATCH_SIZE,
        enable_auto_commit=args.way is Way.PLAIN,
        isolation_level="read_committed" if args.way is Way.ONCE else "read_uncommitted",
    )
    with consumer:
        if args.way is Way.ONCE:
            _book_once(consumer, args.topic, args.database)
        else:
            _book_plainly(consumer, args.topic, args.database)


def _book_once(consumer: _TrappedConsumer, topic: str, database: str) -> None:
    runner = once.Runner(
        consumer, database, book, topics=[topic], strategy=once.DatabaseOffsets(), batch_size=BATCH_SIZE
    )
    when_input_ends(runner.stop, consumer.is_leaving.set)
    runner.run()
    runner.close()


def _book_plainly(consumer: _TrappedConsumer, topic: str, database: str) -> None:
    when_input_ends(consumer.is_leaving.set)
    consumer.subscribe([topic])
    with Bookings(database) as bookings:
        while not consumer.is_leaving.is_set():
            records = consumer.poll(POLL_S)
            if records:
                bookings.book_all(records)


def when_input_ends(*acts: Callable[[], object]) -> None:
    def wait() -> None:
        os.read(STANDARD_INPUT, 1)
        for act in acts:
            act()

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
