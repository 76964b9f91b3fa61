"""Members of a group as processes of their own, to be killed, paused and woken by a test.

Run as a process it imports everything once, has no threads, and forks a member for each line of standard input: a fork
is a fresh process within milliseconds. Members write all that they do to one journal (see `group_books`). SIGTERM asks
a member to leave.

A `reader` polls, notes, and commits by hand now and then. With `stop_at`, it stops itself (SIGSTOP) once it holds that
many records that it has not committed; when it is woken, it tries to commit them. A `booker` is a `once.Runner` that
books numbered orders into a database; with `stop_at`, it stops itself with records in hand that are not booked yet.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

from oncelog import once
from oncelog.consumer.consumer import Consumer
from oncelog.errors import OncelogError
from oncelog.types import TopicPartition
from tests.faults.group_books import Journal
from tests.support.patience import eventually

ROOT = Path(__file__).parent.parent.parent
POLL_S = 0.05
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "fetch_max_wait_ms": 50,
    "max_poll_records": 20,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}
BOOK = "INSERT INTO bookings (kafka_partition, number, booked_by) VALUES ({})"


class Member:
    def __init__(self, order: dict[str, Any]) -> None:
        self.name = order["name"]
        self.is_leaving = False
        self._order = order
        self._journal = Journal(Path(order["journal"]))
        self._stop_at: int | None = order.get("stop_at")
        self._held = 0
        self._positions: dict[int, int] = {}
        self._committed: list[tuple[int, int]] = []
        interceptors = [self] if order["kind"] == "booker" else []
        given = {**SETTINGS, **order["settings"], "group_id": order["group"], "interceptors": interceptors}
        self.consumer = Consumer(order["servers"], **given)
        signal.signal(signal.SIGTERM, lambda *_: self._leave())

    def _leave(self) -> None:
        self.is_leaving = True

    def note(self, what: str, **facts: Any) -> None:
        self._journal.write(self.name, what, **facts)

    def _stop_if_it_is_time(self, records: int) -> None:
        self._held += records
        if self._stop_at is not None and self._held >= self._stop_at:
            self._stop_at = None
            self.note("stopping")
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(self._order.get("dozes_s", 0))
            self.note("woken")

    # --- a reader ---------------------------------------------------------------------------------------------------

    def read(self) -> None:
        chance = random.Random(self.name)
        self.consumer.subscribe(
            self._order["topic"],
            on_assigned=lambda _, partitions: self.note("assigned", partitions=partitions),
            on_revoked=lambda _, partitions: self._revoked(partitions),
            on_lost=lambda _, partitions: self.note("lost", partitions=partitions),
        )
        is_urgent = False
        while not self.is_leaving:
            records: defaultdict[TopicPartition, list[int]] = defaultdict(list)
            for record in self.consumer.poll(POLL_S):
                records[TopicPartition(record.topic, record.partition)].append(record.offset)
                self._positions[record.partition] = record.offset + 1
            if records:
                self.note("got", records=[[*partition, offsets] for partition, offsets in records.items()])
                is_urgent = self._stop_at is not None
                self._stop_if_it_is_time(sum(map(len, records.values())))
            if self._stop_at is None and (is_urgent or not records or chance.random() < 0.5):
                self._commit()
                is_urgent = False
        self.consumer.close()
        self.note("left")

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        self.note("revoked", partitions=partitions)

    def _commit(self) -> None:
        positions = sorted(self._positions.items())
        if positions == self._committed:
            return
        self.note("committing", positions=positions)
        try:
            self.consumer.commit()
            self._committed = positions
            self.note("committed", positions=positions)
        except OncelogError as error:
            self.note("refused", error=type(error).__name__)

    # --- a booker ---------------------------------------------------------------------------------------------------

    def on_consume(self, records: list[Any]) -> list[Any]:
        self._stop_if_it_is_time(len(records))
        return records

    def book(self) -> None:
        url = self._order["database"]
        is_path = "://" not in url
        target: Any = url
        if not is_path:
            from sqlalchemy import create_engine

            target = create_engine(url)
        strategy = getattr(once, self._order["strategy"])()
        effect = self._book_in_sqlite if is_path else self._book_with_sqlalchemy
        runner = once.Runner(self.consumer, target, effect, topics=[self._order["topic"]], strategy=strategy)
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        tally = runner.run()
        self.consumer.close()
        self.note("left", done=tally.done, repeated=tally.repeated)

    def _book_in_sqlite(self, connection: Any, record: Any) -> None:
        connection.execute(BOOK.format("?, ?, ?"), (record.partition, int(record.value), self.name))

    def _book_with_sqlalchemy(self, connection: Any, record: Any) -> None:
        from sqlalchemy import text

        values = {"p": record.partition, "n": int(record.value), "who": self.name}
        connection.execute(text(BOOK.format(":p, :n, :who")), values)


def live(order: dict[str, Any]) -> None:
    member = Member(order)
    if order["kind"] == "booker":
        member.book()
    else:
        member.read()


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                live(order)
                os._exit(0)
            except BaseException as error:
                traceback.print_exc()
                Journal(Path(order["journal"])).write(order["name"], "broke", error=repr(error))
            finally:
                os._exit(1)
        print(pid, flush=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Lives:
    """The process that makes members, seen from a test. Members that still run at the end are killed."""

    def __init__(self, directory: Path, servers: str, topic: str, **common: Any) -> None:
        self.journal = Journal(directory / "journal")
        self.pids: dict[str, int] = {}
        self._common = {"servers": servers, "topic": topic, "journal": str(self.journal.path), "settings": {}} | common
        command = [sys.executable, "-m", __name__ if __name__ != "__main__" else "tests.faults.group_lives"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def start(self, kind: str, **order: Any) -> str:
        """A new member; its name."""
        name = f"{kind} {len(self.pids) + 1}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({**self._common, "kind": kind, "name": name, **order}), file=self._process.stdin, flush=True)
        self.pids[name] = int(self._process.stdout.readline())
        return name

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pids[name], number)

    def kill(self, name: str) -> None:
        """Until it is gone: what it was just writing comes to its end."""
        self.signal(name, signal.SIGKILL)
        eventually(lambda: not _lives(self.pids[name]), f"{name} is dead")

    def __enter__(self) -> Lives:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    serve()
