"""The processes of one group of the demo: started, caught and killed, started again, told to leave.

What they do is in `demo_member`. Between them and the broker stands a fault proxy. Nothing here looks at records.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.audit.bookings import Bookings
from oncelog.broker.process import Broker
from oncelog.cli.demo_member import Way
from oncelog.cli.demo_trap import Trap
from oncelog.errors import OncelogError
from oncelog.faults import FaultProxy, Rule

RULES = (
    Rule.cut("Fetch", probability=0.005),
    Rule.drop_response("Heartbeat", "OffsetCommit", probability=0.02),
)
"""Cut connections, and answers that get lost: also those that tell a member whether its offsets are committed."""

FIRST_MEMBERS = 2
LEAVE_TIMEOUT_S = 60.0
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
        self._trap_path = folder / f"{way}-trap"
        self._trap = Trap(self._trap_path)
        self.proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._bookings: Bookings
        self.kills = 0

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
        words = [self.way, self.proxy.bootstrap_servers, self._topic, self._database, self._trap_path]
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

    def set_trap(self) -> None:
        """The next member that books a batch is to be killed right after."""
        self._trap.set()

    @property
    def is_trap_set(self) -> bool:
        return self._trap.is_set

    def kill_victim(self) -> bool:
        """Kill the member that is caught, if one is, and start another in its place."""
        self._check_alive()
        victim = self._trap.take_victim()
        if victim is None:
            return False
        process = next(each for each in self._processes if each.pid == victim)
        process.kill()
        _reap(process)
        self._processes.remove(process)
        self.kills += 1
        self.add_one()
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
