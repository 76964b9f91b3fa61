"""The processes of one group of the demo: started, caught and killed or put to sleep, told to leave.

What they do is in `demo_member`. Between them and the broker stands a fault proxy. Nothing here looks at records.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.audit.bookings import Bookings
from oncelog.broker.process import Broker
from oncelog.cli.demo_member import SESSION_TIMEOUT_MS, Way
from oncelog.cli.demo_trap import Trap
from oncelog.errors import OncelogError
from oncelog.faults import FaultProxy, Rule

RULES = (
    Rule.cut("Fetch", probability=0.02),
    Rule.drop_response("Heartbeat", "OffsetCommit", probability=0.05),
)
"""Cut connections, and answers that get lost: also those that tell a member whether its offsets are committed."""

FIRST_MEMBERS = 2
SLEEP_S = 2 * SESSION_TIMEOUT_MS / 1_000
"""Long enough for the group to give the sleeper's partitions to others."""

LEAVE_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 2_000


class MemberFailed(OncelogError):
    """A member's process did not do as it should; the message shows the end of its log."""


class Members:
    """Use as a context manager: no process outlives it."""

    def __init__(self, way: Way, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        self.way = way
        self._topic = topic
        self._database = folder / f"{way}.db"
        self._log = folder / f"{way}.log"
        self._trap_paths = [folder / f"{way}-kill", folder / f"{way}-sleep"]
        self._kill_trap, self._sleep_trap = map(Trap, self._trap_paths)
        self._sleeper: subprocess.Popen[bytes] | None = None
        self._wake_at = 0.0
        self.proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._bookings: Bookings

    def __enter__(self) -> Members:
        self._bookings = Bookings(str(self._database))
        self.proxy.start()
        for _ in range(FIRST_MEMBERS):
            self.add_one()
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            _reap(process)
        self.proxy.close()
        self._bookings.close()

    def add_one(self) -> None:
        words = [self.way, self.proxy.bootstrap_servers, self._topic, self._database, *self._trap_paths]
        command = [sys.executable, "-m", "oncelog.cli.demo_member", *map(str, words)]
        with open(self._log, "ab") as log:
            # A process group of its own: Ctrl-C is for the demo, which then ends its members.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
        self._processes.append(process)

    def let_one_leave(self) -> None:
        """The oldest goes in peace: it commits, gives its partitions back and leaves the group."""
        self._end([self._processes[0]])

    def let_all_leave(self) -> None:
        self._end(list(self._processes))

    def set_kill_trap(self) -> None:
        """The next member that books a batch is to be killed right after."""
        self._kill_trap.set()

    def set_sleep_trap(self) -> None:
        """The next member that gets a batch is to sleep with it in hand."""
        self._sleep_trap.set()

    @property
    def is_in_trouble(self) -> bool:
        """Somebody is to be caught, or is asleep."""
        return self._kill_trap.is_set or self._sleep_trap.is_set or self._sleeper is not None

    def kill_victim(self) -> bool:
        """Kill the member that is caught, if one is, and start another in its place."""
        process = self._caught_in(self._kill_trap)
        if process is None:
            return False
        process.kill()
        _reap(process)
        self._processes.remove(process)
        self.add_one()
        return True

    def find_sleeper(self) -> bool:
        """Whether a member has just fallen asleep."""
        process = self._caught_in(self._sleep_trap)
        if process is None:
            return False
        self._sleeper, self._wake_at = process, time.monotonic() + SLEEP_S
        return True

    def wake_sleeper(self) -> bool:
        """Wake the member that sleeps, if it has slept long enough."""
        if self._sleeper is None or time.monotonic() < self._wake_at:
            return False
        self._sleeper.send_signal(signal.SIGCONT)
        self._sleeper = None
        return True

    @property
    def booked(self) -> int:
        """Rows so far, those booked twice included."""
        return self._bookings.row_count

    def has_booked(self, orders: int) -> bool:
        """Whether so many different orders have a row."""
        return self._bookings.row_count >= orders and self._bookings.order_count >= orders

    def audit(self, ledger: Ledger) -> AuditReport:
        """From the first `send()` to the rows."""
        audit = Audit(ledger)
        self._bookings.show_to(audit)
        return audit.report()

    def _end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            try:
                code = process.wait(LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise self._failure(f"did not leave within {LEAVE_TIMEOUT_S:.0f} s") from None
            if code:
                raise self._failure(f"ended with exit code {code} instead of leaving")
            self._processes.remove(process)

    def _caught_in(self, trap: Trap) -> subprocess.Popen[bytes] | None:
        self._check_alive()
        victim = trap.take_victim()
        return next((each for each in self._processes if each.pid == victim), None)

    def _check_alive(self) -> None:
        for process in self._processes:
            code = process.poll()
            if code is not None:
                raise self._failure(f"ended with exit code {code} although nobody killed it")

    def _failure(self, what: str) -> MemberFailed:
        return MemberFailed(f"a member of the group that books {self.way} {what}; it said:\n{self._said()}")

    def _said(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()


def _reap(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.wait()
