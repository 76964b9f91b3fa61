"""Faults as a tool: a proxy that speaks Kafka's frames and breaks them by a seeded script.

`FaultProxy` stands between any Kafka client and any Kafka broker, `Rule` says what goes wrong, `proxy.report()` what
did. `rules`, `frames`, `rewrite`, `tally` and `core` are pure; `connection` and `proxy` own the sockets.
"""

from __future__ import annotations

from oncelog.faults.proxy import FaultProxy, ProxyFailed
from oncelog.faults.rules import Direction, Fault, Rule
from oncelog.faults.tally import Counts, Report

__all__ = ["Counts", "Direction", "Fault", "FaultProxy", "ProxyFailed", "Report", "Rule"]
