"""One cell of a matrix: numbered records through the fault proxy, with some settings of the producer; and the audit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import oncelog
from oncelog.audit.account import Audit, AuditReport, Counts
from oncelog.audit.numbered_load import NumberedLoad
from oncelog.cli.audit import observe_topic
from oncelog.faults import FaultProxy, Report, Rule

PARTITIONS = 4
SETTLE_S = 60.0
POLL_S = 0.01

PATIENT: dict[str, Any] = {
    # Nobody gives up because the machine is busy, and nobody sleeps long.
    "delivery_timeout_ms": 120_000,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "linger_ms": 1,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    audit: AuditReport
    faults: Report
    failures: tuple[str, ...]

    @property
    def total(self) -> Counts:
        return self.audit.total

    def __str__(self) -> str:
        examples = [example for entry in self.audit.partitions for example in entry.examples]
        return "\n".join([str(self.total), str(self.faults), *self.failures[:3], *examples[:5]])


def run_cell(
    bootstrap_servers: str,
    topic: str,
    rules: Iterable[Rule],
    seed: int,
    *,
    records: int,
    rows: int = 0,
    until: Callable[[Counts], bool] = lambda counts: True,
    **settings: Any,
) -> Outcome:
    """Send `records` one by one and `rows` as a table through the proxy; read past it.

    What a client no longer waits for may still be on its way: with `acks=0` everything, else what timed out. It is let
    through the proxy first, and the audit is repeated until it shows what is looked for.
    """
    with FaultProxy(bootstrap_servers, rules, seed=seed) as proxy:
        with oncelog.Producer(proxy.bootstrap_servers, **{**PATIENT, **settings}) as producer:
            load = NumberedLoad(producer, topic)
            load.send(records)
            if rows:
                load.send_table(rows)
        deadline = time.monotonic() + SETTLE_S
        while proxy.open_connections and time.monotonic() < deadline:
            time.sleep(POLL_S)
        audit = audit_of(load, bootstrap_servers, topic)
        while not until(audit.total) and time.monotonic() < deadline:
            audit = audit_of(load, bootstrap_servers, topic)
        return Outcome(audit, proxy.report(), tuple(load.failures))


def audit_of(load: NumberedLoad, bootstrap_servers: str, topic: str) -> AuditReport:
    audit = Audit(load.ledger)
    observe_topic(audit, bootstrap_servers, topic)
    return audit.report()
