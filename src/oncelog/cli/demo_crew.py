"""Processes of one kind in the demo: started, caught in a trap and killed or left asleep, told to leave.

Between them and the broker stands a fault proxy. Nothing here looks at records.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import abstractmethod
from pathlib import Path

from oncelog.cli.demo_lifetime import Lifetime, uncut
from oncelog.cli.demo_trap import Trap
from oncelog.errors import OncelogError
from oncelog.faults import FaultProxy

SLEEP_S = 6.0
"""Long enough for a group to give the sleeper's partitions to others."""
LEAVE_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 2_000


class MemberFailed(OncelogError):
    """A process did not do as it should; the message shows the end of its log."""


class Crew(Lifetime):
    """Use as a context manager: no process outlives it."""

    def __init__(self, what: str, name: str, module: str, folder: Path, proxy: FaultProxy, size: int) -> None:
        """`what` is said of one of them if it fails."""
        self.proxy = proxy
        self._what = what
        self._module = module
        self._size = size
        self._log = folder / f"{name}.log"
        self.trap_paths = [folder / f"{name}-kill", folder / f"{name}-sleep"]
        self._kill_trap, self._sleep_trap = map(Trap, self.trap_paths)
        self._sleeper: subprocess.Popen[bytes] | None = None
        self._wake_at = 0.0
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        """By a number, which goes on to whoever takes the place of one that was killed."""
        self._next_number = 0

    @abstractmethod
    def words(self, number: int) -> list[object]:
        """What its process is told."""

    def open(self) -> None:
        with uncut():
            self.proxy.start()
        for _ in range(self._size):
            self.add_one()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            _reap(process)
        self.proxy.close()

    def add_one(self) -> None:
        self._start(self._next_number)
        self._next_number += 1

    def _start(self, number: int) -> None:
        command = [sys.executable, "-m", self._module, *map(str, self.words(number))]
        with self._log.open("ab") as log, uncut():
            # A process group of its own: Ctrl-C is for the demo, which then ends its processes.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
            self._processes[number] = process

    def let_one_leave(self) -> None:
        """The oldest goes in peace: it commits, gives its partitions back and leaves the group."""
        self._end([next(iter(self._processes))])

    def let_all_leave(self) -> None:
        self._end(list(self._processes))

    def set_kill_trap(self) -> None:
        """The next one that comes by is to be killed there."""
        self._kill_trap.set()

    def set_sleep_trap(self) -> None:
        """The next one that gets a batch is to sleep with it in hand."""
        self._sleep_trap.set()

    @property
    def is_in_trouble(self) -> bool:
        """Somebody is to be caught, or is asleep."""
        return self._kill_trap.is_set or self._sleep_trap.is_set or self._sleeper is not None

    def kill_victim(self) -> bool:
        """Kill the one that is caught, if one is, and start another in its place."""
        number = self._caught_in(self._kill_trap)
        if number is None:
            return False
        victim = self._processes[number]
        victim.kill()
        _reap(victim)
        del self._processes[number]  # only now: until here `close` must know of it
        self._start(number)
        return True

    def find_sleeper(self) -> bool:
        """Whether one has just fallen asleep."""
        number = self._caught_in(self._sleep_trap)
        if number is None:
            return False
        self._sleeper, self._wake_at = self._processes[number], time.monotonic() + SLEEP_S
        return True

    def wake_sleeper(self) -> bool:
        """Wake the one that sleeps, if it has slept long enough."""
        if self._sleeper is None or time.monotonic() < self._wake_at:
            return False
        self._sleeper.send_signal(signal.SIGCONT)
        self._sleeper = None
        return True

    def _end(self, numbers: list[int]) -> None:
        for number in numbers:
            stdin = self._processes[number].stdin
            assert stdin is not None
            stdin.close()
        for number in numbers:
            try:
                code = self._processes[number].wait(LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise self._failure(f"did not leave within {LEAVE_TIMEOUT_S:.0f} s") from None
            if code:
                raise self._failure(f"ended with exit code {code} instead of leaving")
            del self._processes[number]

    def _caught_in(self, trap: Trap) -> int | None:
        self._check_alive()
        victim = trap.take_victim()
        return next((number for number, one in self._processes.items() if one.pid == victim), None)

    def _check_alive(self) -> None:
        for process in self._processes.values():
            code = process.poll()
            if code is not None:
                raise self._failure(f"ended with exit code {code} although it was not killed")

    def _failure(self, what: str) -> MemberFailed:
        return MemberFailed(f"{self._what} {what}; it said:\n{self._said()}")

    def _said(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()


def _reap(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.wait()
