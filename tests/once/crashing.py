"""Processes that work on a shop and are killed with SIGKILL at a chosen statement; and those that race.

All are forked from one helper process (`python -m tests.once.crashing`), which has imported everything and has no
threads: a fork of it costs milliseconds.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401  # for those that are forked
import redis
from sqlalchemy import Engine, create_engine, event

from oncelog import once
from oncelog.once.strategy import Strategy
from tests.once.shop import PARTITION, Order, Shop, strategy

MAX_TRIES = 2_000
NEVER = 0
ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Job:
    shop: Shop
    strategy: str
    records: list[Order]
    redis_port: int | None = None
    batch_size: int = 100
    kill_at: int = NEVER
    """The number of the statement after which the process is killed."""

    def made_strategy(self) -> Strategy:
        return strategy(self.strategy, self.redis_port)


class Helper:
    """Runs jobs in processes of their own, all of a call at once."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, *jobs: Job) -> list[bool]:
        """Whether each got to its end; the others were killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(jobs, self._process.stdin)
        self._process.stdin.flush()
        codes = pickle.load(self._process.stdout)
        assert all(code in (0, -signal.SIGKILL) for code in codes), f"processes ended with {codes}: see stderr"
        return [code == 0 for code in codes]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def serve() -> None:
    create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")  # loads the dialect
    gc.freeze()  # else every child would copy most of the memory, to count references
    while True:
        try:
            jobs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        children = [_forked(job) for job in jobs]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        pickle.dump(codes, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _forked(job: Job) -> int:
    child = os.fork()
    if child == 0:
        try:
            work_and_die(job)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


# --- being killed -----------------------------------------------------------------------------------------------


class Countdown:
    """Kills this process when it has been hit so many times."""

    def __init__(self, left: int) -> None:
        self.left = left

    def hit(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def hook(countdown: Countdown) -> None:
    """Every statement of every connection that is opened from now on counts, and every command to Redis."""
    connect = sqlite3.connect

    def hooked(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(countdown.hit)  # called when a statement begins: the one before it has ended
        return connection

    sqlite3.connect = hooked  # type: ignore[assignment]
    event.listen(Engine, "after_cursor_execute", countdown.hit)
    event.listen(Engine, "commit", countdown.hit)
    execute = redis.Redis.execute_command

    def hooked_command(self: Any, *args: Any, **options: Any) -> Any:
        answer = execute(self, *args, **options)
        countdown.hit()
        return answer

    redis.Redis.execute_command = hooked_command  # type: ignore[method-assign]


def work_and_die(job: Job) -> None:
    countdown = Countdown(job.kill_at)
    hook(countdown)
    work(job)
    countdown.hit()  # after the last statement, before anybody is told


# --- working ----------------------------------------------------------------------------------------------------


def work(job: Job) -> None:
    """Deliver all records, in batches, and get over whatever two workers do to each other."""
    database = job.shop.open()
    worker = insist(lambda: once.Worker(database, job.shop.book, job.made_strategy(), scope=job.shop.scope), database)
    try:
        insist(lambda: worker.guard.claim([PARTITION]), database)
        for start in range(0, len(job.records), job.batch_size):
            batch = job.records[start : start + job.batch_size]
            insist(lambda batch=batch: worker.process(batch), database)  # type: ignore[misc]
    except once.PartitionFenced:
        pass  # the other one has the partition now
    finally:
        worker.close()


def insist(act: Callable[[], Any], database: once.Database) -> Any:
    for _ in range(MAX_TRIES):
        try:
            return act()
        except (once.LeaseHeld, once.LeaseLost):
            time.sleep(0.01)  # as long as a lease lasts
        except Exception as error:
            if not database.is_outage(error):
                raise
            database.disconnect()
    raise AssertionError(f"not within {MAX_TRIES} tries")


def race(*jobs: Job) -> None:
    """All at once, each in a thread of its own."""
    problems: list[BaseException] = []

    def run(job: Job) -> None:
        try:
            work(job)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


if __name__ == "__main__":
    import_module("tests.once.crashing").serve()  # under its own name, which pickled classes are found by
