"""One group of the demo that books payments: its processes, and what they have booked."""

from __future__ import annotations

from pathlib import Path

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.audit.bookings import Bookings
from oncelog.broker.process import Broker
from oncelog.cli.demo_crew import Crew
from oncelog.cli.demo_member import Way
from oncelog.faults import FaultProxy, Rule

RULES = (
    Rule.cut("Fetch", probability=0.02),
    Rule.drop_response("Heartbeat", "OffsetCommit", probability=0.05),
)
"""Cut connections, and answers that get lost: also those that tell a member whether its offsets are committed."""

FIRST_MEMBERS = 2


class Members(Crew):
    def __init__(self, way: Way, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        what = f"a member of the group that books {way}"
        super().__init__(what, way, "oncelog.cli.demo_member", folder, proxy, FIRST_MEMBERS)
        self.way = way
        self._topic = topic
        self._database = folder / f"{way}.db"
        self._bookings = Bookings(str(self._database))

    def close(self) -> None:
        super().close()
        self._bookings.close()

    def words(self, number: int) -> list[object]:
        return [self.way, self.proxy.bootstrap_servers, self._topic, self._database, *self.trap_paths]

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
