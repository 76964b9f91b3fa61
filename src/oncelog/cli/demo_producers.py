"""A producer of the demo behind its fault proxy, and the thread that feeds it with numbered orders."""

from __future__ import annotations

import threading
import time

from oncelog.audit.account import Audit, AuditReport
from oncelog.audit.numbered_load import NumberedLoad
from oncelog.broker.process import Broker
from oncelog.cli.audit import observe_topic
from oncelog.cli.demo_lifetime import Lifetime, uncut
from oncelog.cli.demo_script import Script
from oncelog.client.producer_errors import ProducerClosed
from oncelog.faults import FaultProxy, Rule
from oncelog.producer.producer import Producer

RECORD_BYTES = 100
RULES = (
    Rule.drop_response("Produce", probability=0.01),
    Rule.reorder_requests("Produce", probability=0.02),
    Rule.cut("Produce", probability=0.005),
    # Also where a slow machine sends few requests, and chance would spare them all.
    Rule.drop_response("Produce", every=2, limit=5),
)
"""Answers that get lost (what was stored is sent again), requests that overtake each other, cut connections."""

CHUNK = 100
WAIT_S = 0.05


class Sending(Lifetime):
    """Sends as fast as the pace and the script allow."""

    def __init__(
        self, broker: Broker, topic: str, script: Script, seed: int, records_per_s: int, *, enable_idempotence: bool
    ) -> None:
        self.topic = topic
        self._broker = broker
        self._script = script
        self._records_per_s = records_per_s
        self._is_ending = threading.Event()
        self._enable_idempotence = enable_idempotence
        self.proxy = FaultProxy(broker.bootstrap_servers, RULES, seed=seed)
        self.load: NumberedLoad
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def open(self) -> None:
        with uncut():
            self.proxy.start()
            self._producer = Producer(self.proxy.bootstrap_servers, enable_idempotence=self._enable_idempotence)
        self.load = NumberedLoad(self._producer, self.topic, name="demo", record_bytes=RECORD_BYTES)
        with uncut():
            self._thread.start()

    def close(self) -> None:
        self._is_ending.set()
        if self._producer is not None:
            self._producer.close(0)
        if self._thread.is_alive():
            self._thread.join()
        self.proxy.close()

    @property
    def settled(self) -> int:
        return self.load.acknowledged + len(self.load.failures)

    def audit(self) -> AuditReport:
        """From the first `send()` to the log."""
        audit = Audit(self.load.ledger)
        observe_topic(audit, self._broker.bootstrap_servers, self.topic)
        return audit.report()

    def _feed(self) -> None:
        records, begun = self._script.records, time.monotonic()
        try:
            while self.load.sent < records:
                self.load.send(min(CHUNK, self._script.allowed - self.load.sent))
                due = begun + self.load.sent / self._records_per_s
                wait_s = max(0.0, due - time.monotonic())
                if self.load.sent >= self._script.allowed:
                    wait_s = max(WAIT_S, wait_s)
                if self._is_ending.wait(wait_s):
                    return
        except ProducerClosed:
            if not self._is_ending.is_set():
                raise
