"""The processors of the demo, between orders and payments, and what readers of either isolation level see of them."""

from __future__ import annotations

from pathlib import Path

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.broker.process import Broker
from oncelog.cli.audit import observe_topic
from oncelog.cli.demo_crew import Crew
from oncelog.faults import FaultProxy, Rule
from oncelog.types import IsolationLevel

RULES = (
    Rule.cut("Fetch", probability=0.01),
    Rule.drop_response("EndTxn", "TxnOffsetCommit", "Produce", probability=0.01),
)
"""Also answers get lost that tell whether a transaction is committed."""

PROCESSORS = 2


class Processors(Crew):
    def __init__(self, broker: Broker, source: str, target: str, folder: Path, seed: int) -> None:
        proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        super().__init__("a processor", "processors", "oncelog.cli.demo_processor", folder, proxy, PROCESSORS)
        self._broker = broker
        self._source = source
        self._target = target

    def words(self, number: int) -> list[object]:
        return [number, self.proxy.bootstrap_servers, self._source, self._target, self.trap_paths[0]]

    def audit(self, ledger: Ledger, isolation: IsolationLevel) -> AuditReport:
        """From the first `send()` to the payments that a reader sees."""
        audit = Audit(ledger)
        observe_topic(audit, self._broker.bootstrap_servers, self._target, isolation)
        return audit.report()
